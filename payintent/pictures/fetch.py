"""Fetching of pictures: from public addresses only, with limits on time and size."""

import asyncio
import ssl
from functools import partial
from urllib.parse import urljoin

import aiohttp
from aiohttp.abc import AbstractResolver

from payintent.exact_url import encode_unsendable, exact_url
from payintent.pictures.errors import NoPictureError
from payintent.version import API_VERSION
from payintent.webhooks.egress import (
    CheckedResolver,
    EgressRefusedError,
    EgressRules,
    check_callback_url,
    checked_socket,
)

USER_AGENT = f"PaymentIntentService-Pictures/{API_VERSION}"
BYTES_MAX = 4 * 1024 * 1024
TIMEOUT_S = 3.0
REDIRECTS_MAX = 3
_SOCKETS_MAX = 8
_HEADER_BYTES_MAX = 8 * 1024
_OK = 200
_MOVED = frozenset({301, 302, 303, 307, 308})


class _PictureResolver(CheckedResolver, AbstractResolver):
    """The checked resolver as a resolver of the HTTP client."""


class PictureFetcher:
    """The HTTP client for pictures; its session opens with the first fetch.

    Every address is checked with the rules for webhooks, also after a redirect.
    """

    def __init__(
        self,
        rules: EgressRules,
        tls: ssl.SSLContext | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._rules = rules
        self._tls = tls
        self._timeout_s = timeout_s
        self._needs_https = not rules.sandbox
        self._session: aiohttp.ClientSession | None = None
        self._resolver: _PictureResolver | None = None

    async def fetch(self, url: str) -> bytes:
        """Return the content of a URL; raise `NoPictureError` for any failure."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._follow(url)
        except NoPictureError:
            raise
        except EgressRefusedError as error:
            raise NoPictureError(error.reason) from error
        except TimeoutError as error:
            raise NoPictureError("no complete response in time") from error
        except aiohttp.ClientConnectorError as error:
            cause = error.os_error
            is_refused = isinstance(cause, EgressRefusedError)
            raise NoPictureError(cause.reason if is_refused else "no connection") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoPictureError(f"no readable response ({type(error).__name__})") from error

    async def close(self) -> None:
        session, resolver = self._session, self._resolver
        self._session = self._resolver = None
        if session is not None:
            await session.close()
        if resolver is not None:
            await resolver.close()

    async def _follow(self, url: str) -> bytes:
        for _ in range(REDIRECTS_MAX + 1):
            target = check_callback_url(encode_unsendable(url), self._rules)
            if self._needs_https and not target.url.startswith("https://"):
                raise NoPictureError("the address must be https")
            request = self._open_session().get(exact_url(target.url), allow_redirects=False)
            async with request as response:
                if response.status == _OK:
                    return await _read_body(response)
                if response.status not in _MOVED:
                    raise NoPictureError(f"HTTP {response.status}")
                url = urljoin(target.url, response.headers.get("Location", ""))
        raise NoPictureError("too many redirects")

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._resolver = _PictureResolver(rules=self._rules)
            connector = aiohttp.TCPConnector(
                resolver=self._resolver,
                use_dns_cache=False,
                socket_factory=partial(checked_socket, rules=self._rules),
                limit=_SOCKETS_MAX,
                force_close=True,
                ssl=self._tls or True,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # a few bytes may expand to gigabytes
                trust_env=False,  # a proxy would connect to unchecked addresses
                max_line_size=_HEADER_BYTES_MAX,
                max_field_size=_HEADER_BYTES_MAX,
            )
        return self._session


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    if (response.content_length or 0) <= BYTES_MAX:
        async for chunk in response.content.iter_any():
            content += chunk
            if len(content) > BYTES_MAX:
                break
        else:
            return bytes(content)
    response.close()  # do not read the rest
    raise NoPictureError(f"more than {BYTES_MAX} bytes")
