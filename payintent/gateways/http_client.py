"""The HTTP client of the gateway adapters: bounded, and its failures are values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import msgspec

from payintent.domain.gateway import AccountProblem, NotContacted, OutcomeUnknown
from payintent.exact_url import exact_url
from payintent.slot import release_slot

if TYPE_CHECKING:
    import ssl

    import aiohttp

T = TypeVar("T")
CONNECT_TIMEOUT_S = 5.0
SOCKETS_MAX = 512
SOCKETS_PER_HOST_MAX = 256  # one slow gateway must not take all of them
_THROTTLING = frozenset({403, 429})
_CHUNK_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A gateway's answer, as bytes; nothing in it is trusted yet."""

    status: int
    body: bytes
    date: str = field(default="", compare=False)  # the header of that name


def decode_json(body: bytes, kind: type[T]) -> T | None:
    """Decode JSON into `kind`; None if the body is not JSON of this form."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def unusable(status: int, detail: str) -> OutcomeUnknown:
    """Return the outcome of an answer without a result, noting whether it limits our requests."""
    return OutcomeUnknown(detail=detail, throttled=status in _THROTTLING)


class GatewayHttpClient:
    """One client session for all gateways, opened on first use; `close` it at the end."""

    def __init__(
        self, timeout_s: float, answer_bytes_max: int, tls: "ssl.SSLContext | None" = None
    ) -> None:
        """Take the trust of TLS connections as `tls`; None: the system's authorities."""
        self._timeout_s = timeout_s
        self._answer_bytes_max = answer_bytes_max
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpAnswer | OutcomeUnknown:
        """Send one request; no answer, a late one and a too large one are `OutcomeUnknown`.

        `NotContacted` where no connection was made, so that nothing can have been read.
        Redirects are not followed and compressed bodies are not unpacked.
        """
        import aiohttp  # imported when used: most commands call no gateway

        release_slot()
        try:
            async with self._open().request(
                method,
                exact_url(url),
                data=body,
                headers={"Accept-Encoding": "identity", **headers},
                allow_redirects=False,
            ) as response:
                return await self._read(response)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return _not_contacted(error)
        except TimeoutError:
            return OutcomeUnknown(detail=f"no answer within {self._timeout_s:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # The class alone: a message may contain the URL, and with it a key.
            return OutcomeUnknown(detail=f"no answer: {type(error).__name__}")

    async def close(self) -> None:
        if self._session:
            await self._session.close()
            self._session = None

    def _open(self) -> "aiohttp.ClientSession":
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(
                    total=self._timeout_s, sock_connect=CONNECT_TIMEOUT_S
                ),
                connector=aiohttp.TCPConnector(
                    limit=SOCKETS_MAX,
                    limit_per_host=SOCKETS_PER_HOST_MAX,
                    ssl=self._tls or True,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),  # accounts must not share cookies
                auto_decompress=False,
            )
        return self._session

    async def _read(self, response: "aiohttp.ClientResponse") -> HttpAnswer | OutcomeUnknown:
        body = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            body += chunk
            if len(body) > self._answer_bytes_max:
                response.close()
                return OutcomeUnknown(detail=f"the answer exceeds {self._answer_bytes_max} bytes")
        return HttpAnswer(response.status, bytes(body), response.headers.get("Date", ""))


def _not_contacted(error: Exception) -> NotContacted:
    """Say why no connection came about: never by the message, which may contain the URL."""
    import aiohttp

    name = type(error).__name__
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        # OpenSSL's own reason, such as "self-signed certificate".
        why = str(getattr(error.certificate_error, "verify_message", "")) or "not verified"
        detail = f"no connection: {name}: {why}"
        return NotContacted(detail=detail, problem=AccountProblem.TLS)
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return NotContacted(detail=f"no connection: {name}", problem=AccountProblem.TLS)
    return NotContacted(detail=f"no connection: {name}")
