"""The merchant's servers that commands call: their URLs and certificates."""

from __future__ import annotations

import re
import ssl
from urllib.parse import quote

import httpx

from payintent_cli.usage import UsageError

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:/", re.IGNORECASE)
_PORT_MAX = 65_535
_AS_GIVEN = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def read_url(text: str, option: str) -> str:
    """Return the URL in an option, and add `http://` if it has no scheme. Raises `UsageError`."""
    url = text if _SCHEME.match(text) else f"http://{text}"
    try:
        parsed = httpx.URL(url)
        parsed.host.encode("idna")  # as the resolver does; fails if a label is empty or too long
    except (httpx.InvalidURL, UnicodeError) as error:
        raise UsageError(f"{option}: {text!r} is not a URL: {error}") from None
    is_valid = parsed.scheme in {"http", "https"} and "://" in url and bool(parsed.host)
    port = 1 if parsed.port is None else parsed.port
    if not is_valid or not 0 < port <= _PORT_MAX:
        raise UsageError(
            f"{option}: {text!r} is not an http or https URL such as http://localhost:3000/hooks"
        )
    return url


def tls_context(*, insecure: bool) -> ssl.SSLContext:
    """Return the TLS context for a server. If `insecure` is set, certificates are not checked."""
    return httpx.create_ssl_context(verify=not insecure)


def is_untrusted(error: httpx.TransportError) -> bool:
    """Return whether a request failed because the server's certificate is not trusted."""
    return "CERTIFICATE_VERIFY_FAILED" in str(error)


def exact_target(url: str) -> dict[str, bytes]:
    """Return the request extensions that make httpx send the path of `url` byte for byte.

    They are empty if httpx sends the same path without them, because they break requests through a
    proxy.
    """
    rest = url.partition("#")[0].partition("://")[2]
    path = rest.removeprefix(rest.partition("/")[0].partition("?")[0])
    path = path if path.startswith("/") else "/" + path
    target = quote(path, safe=_AS_GIVEN).encode()
    return {} if httpx.URL(url).raw_path == target else {"target": target}
