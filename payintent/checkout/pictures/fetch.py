"""Fetch images from merchants' URLs within limits, and encode them as small WebP files."""

import asyncio
import ssl
from functools import partial
from io import BytesIO
from urllib.parse import urljoin

import aiohttp
from aiohttp.abc import AbstractResolver
from PIL import Image, ImageOps

from payintent.http.egress import (
    CheckedResolver,
    EgressRefusedError,
    EgressRules,
    check_callback_url,
    open_checked_socket,
)
from payintent.runtime.http_session import encode_invalid_characters, make_exact_url
from payintent.runtime.version import API_VERSION

USER_AGENT = f"PaymentIntentService-Pictures/{API_VERSION}"
BYTES_MAX = 4 * 1024 * 1024
TIMEOUT_S = 3.0
REDIRECTS_MAX = 3
_SOCKETS_MAX = 8
_HEADER_BYTES_MAX = 8 * 1024
_OK = 200
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
SIDE_PX = 256
#: JPEG is decoded at a reduced size. PNG needs 4 bytes per pixel, WebP about 17.
PIXELS_MAX = {"JPEG": 16_000_000, "PNG": 9_000_000, "WEBP": 9_000_000}
FORMATS = tuple(PIXELS_MAX)
#: Maximum number of scans in a JPEG; progressive files have about ten. Each scan can be as short as
#: 31 bytes but covers all pixels, so decoding a malicious file of 4 MiB would take twenty minutes.
SCANS_MAX = 100
_SCAN = b"\xff\xda"  # cannot occur in compressed data, in which 00 follows ff
_QUALITY = 80

# At its own limit, Pillow only warns. Our limit is lower and is enforced before decoding.
Image.MAX_IMAGE_PIXELS = None


class PictureUnavailableError(Exception):
    """An image is unavailable. The message gives the reason, but never the URL."""


def encode_picture(content: bytes) -> bytes:
    """Convert a PNG, JPEG or WebP to a WebP of at most 256 x 256 pixels.

    Metadata, colour profiles and all frames but the first are dropped. Raises
    `PictureUnavailableError`.
    """
    try:
        with Image.open(BytesIO(content), formats=FORMATS) as picture:
            _check_size(picture)
            _check_scans(picture, content)
            return _write_webp(_shrink(picture))
    except PictureUnavailableError:
        raise
    except Exception as error:  # decoders raise undocumented errors
        raise PictureUnavailableError("not a valid PNG, JPEG or WebP file") from error


def _check_size(picture: Image.Image) -> None:
    """Reject decompression bombs before decoding, based on the size in the header."""
    width, height = picture.size
    if width * height > PIXELS_MAX[picture.format or ""]:
        raise PictureUnavailableError(f"too large: {width} x {height} pixels")


def _check_scans(picture: Image.Image, content: bytes) -> None:
    """Reject small JPEG files that would take a very long time to decode."""
    if picture.format == "JPEG" and content.count(_SCAN) > SCANS_MAX:
        raise PictureUnavailableError(f"more than {SCANS_MAX} scans")


def _shrink(picture: Image.Image) -> Image.Image:
    """Decode an image, shrink it, and apply its EXIF orientation.

    The orientation is applied last, to avoid another copy at full size.
    """
    picture.draft("RGB", (2 * SIDE_PX, 2 * SIDE_PX))
    mode = "RGBA" if picture.has_transparency_data else "RGB"
    thumbnail = picture if picture.mode == mode else picture.convert(mode)
    thumbnail.thumbnail((SIDE_PX, SIDE_PX))
    return ImageOps.exif_transpose(thumbnail)


def _write_webp(picture: Image.Image) -> bytes:
    plain = Image.new(picture.mode, picture.size)  # drops metadata
    plain.paste(picture)
    buffer = BytesIO()
    plain.save(buffer, "WEBP", quality=_QUALITY)
    return buffer.getvalue()


class _PictureResolver(CheckedResolver, AbstractResolver):
    """Adapt `CheckedResolver` to aiohttp."""


class PictureFetcher:
    """An HTTP client for images. It opens its session on the first fetch.

    Every resolved address is checked against the egress rules, including after a redirect.
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
        """Return the content at a URL; raise `PictureUnavailableError` on any failure."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._fetch_with_redirects(url)
        except PictureUnavailableError:
            raise
        except EgressRefusedError as error:
            raise PictureUnavailableError(error.reason) from error
        except TimeoutError as error:
            raise PictureUnavailableError("the response timed out") from error
        except aiohttp.ClientConnectorError as error:
            cause = error.os_error
            is_refused = isinstance(cause, EgressRefusedError)
            reason = cause.reason if is_refused else "the connection failed"
            raise PictureUnavailableError(reason) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise PictureUnavailableError(
                f"the response is invalid ({type(error).__name__})"
            ) from error

    async def close(self) -> None:
        session, resolver = self._session, self._resolver
        self._session = self._resolver = None
        if session is not None:
            await session.close()
        if resolver is not None:
            await resolver.close()

    async def _fetch_with_redirects(self, url: str) -> bytes:
        for _ in range(REDIRECTS_MAX + 1):
            target = check_callback_url(encode_invalid_characters(url), self._rules)
            if self._needs_https and not target.url.startswith("https://"):
                raise PictureUnavailableError("the URL must use https")
            request = self._open_session().get(make_exact_url(target.url), allow_redirects=False)
            async with request as response:
                if response.status == _OK:
                    return await _read_body(response)
                if response.status not in _REDIRECT_STATUSES:
                    raise PictureUnavailableError(f"HTTP {response.status}")
                url = urljoin(target.url, response.headers.get("Location", ""))
        raise PictureUnavailableError("too many redirects")

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._resolver = _PictureResolver(rules=self._rules)
            self._session = aiohttp.ClientSession(
                connector=self._make_connector(self._resolver),
                headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # a few bytes may expand to gigabytes
                trust_env=False,  # a proxy would bypass the address check
                max_line_size=_HEADER_BYTES_MAX,
                max_field_size=_HEADER_BYTES_MAX,
            )
        return self._session

    def _make_connector(self, resolver: _PictureResolver) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(
            resolver=resolver,
            use_dns_cache=False,
            socket_factory=partial(open_checked_socket, rules=self._rules),
            limit=_SOCKETS_MAX,
            force_close=True,
            ssl=self._tls or True,
        )


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    if (response.content_length or 0) <= BYTES_MAX:
        async for chunk in response.content.iter_any():
            content += chunk
            if len(content) > BYTES_MAX:
                break
        else:
            return bytes(content)
    response.close()  # do not read the rest of the body
    raise PictureUnavailableError(f"more than {BYTES_MAX} bytes")
