"""Outgoing HTTP: client sessions, and URLs that are sent unchanged."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    import ssl

    import aiohttp
    from yarl import URL


@dataclass(slots=True)
class HttpSession:
    """An HTTP client session, which is opened by the first request.

    If `tls` is None, the system's certificate authorities are trusted. Cookies are not stored,
    because accounts must not share them. Responses are not decompressed, because a few bytes could
    expand to gigabytes.
    """

    tls: "ssl.SSLContext | None"
    sockets_max: int = 100
    sockets_per_host_max: int = 0  # 0 means no limit
    timeout_s: float | None = None  # for a whole request
    connect_timeout_s: float | None = None
    read_timeout_s: float | None = None  # between two chunks of a response
    headers: Mapping[str, str] | None = None
    _session: "aiohttp.ClientSession | None" = field(default=None, init=False)

    def open(self) -> "aiohttp.ClientSession":
        import aiohttp  # imported here because most commands do not send requests

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self.sockets_max,
                    limit_per_host=self.sockets_per_host_max,
                    ssl=self.tls or True,
                ),
                headers=self.headers,
                timeout=aiohttp.ClientTimeout(
                    total=self.timeout_s,
                    sock_connect=self.connect_timeout_s,
                    sock_read=self.read_timeout_s,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._session

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


#: Punctuation that is valid in a request line; `quote` also keeps letters and digits.
_VALID_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def make_exact_url(text: str) -> "URL":
    """Return a URL whose path and query the client sends byte for byte.

    Only characters that are invalid in a request line are encoded: spaces, control characters and
    non-ASCII characters. The fragment is removed. Raises `ValueError` if the URL is not absolute.
    """
    from yarl import URL  # imported here because most commands do not send requests

    scheme, _, remainder = text.partition("#")[0].partition("://")
    authority = remainder.partition("/")[0].partition("?")[0]
    if not scheme or not authority:
        raise ValueError("the URL must be absolute")
    origin, target = URL(f"{scheme}://{authority}/"), remainder.removeprefix(authority)
    if not origin.raw_host:
        raise ValueError("the URL has no host")
    path = encode_invalid_characters(target if target.startswith("/") else "/" + target)
    return URL.build(scheme=origin.scheme, authority=origin.raw_authority, path=path, encoded=True)


def encode_invalid_characters(text: str) -> str:
    """Percent-encode the characters that are invalid in a request line."""
    return quote(text, safe=_VALID_PUNCTUATION)
