"""An HTTP client for gateway adapters that limits time and size, and returns failures as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import msgspec

from payintent.gateways.port import AccountProblem, NotContacted, OutcomeUnknown
from payintent.runtime.http_session import HttpSession, make_exact_url
from payintent.runtime.waiting import release_slot

if TYPE_CHECKING:
    import ssl

    import aiohttp

T = TypeVar("T")
CONNECT_TIMEOUT_S = 5.0
SOCKETS_MAX = 512
SOCKETS_PER_HOST_MAX = 256  # a slow gateway must not use all sockets
_THROTTLING_STATUSES = frozenset({403, 429})
_CHUNK_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A gateway's response. Its signature and format are not yet verified."""

    status: int
    body: bytes
    date: str = field(default="", compare=False)  # the `Date` header


HttpResult = HttpResponse | OutcomeUnknown


def decode_json(body: bytes, model: type[T]) -> T | None:
    """Decode JSON into `model`. Returns None if the body is invalid."""
    try:
        return msgspec.json.decode(body, type=model)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def unusable_response(status: int, detail: str) -> OutcomeUnknown:
    """Build the outcome for a response without a result. 403 and 429 are treated as throttling."""
    return OutcomeUnknown(detail=detail, is_throttled=status in _THROTTLING_STATUSES)


def inconclusive_response(detail: str) -> OutcomeUnknown:
    """Build the outcome for an authentic response that does not contain the result."""
    return OutcomeUnknown(detail=detail, has_responded=True)


def printable_text(text: str, chars_max: int | None = None) -> str:
    return "".join(char for char in text if char.isprintable())[:chars_max]


class GatewayHttpClient:
    """Shares a client session among all gateways. Call `close` after use."""

    def __init__(
        self, timeout_s: float, response_bytes_max: int, tls: "ssl.SSLContext | None" = None
    ) -> None:
        self._timeout_s = timeout_s
        self._response_bytes_max = response_bytes_max
        self._session = HttpSession(
            tls,
            sockets_max=SOCKETS_MAX,
            sockets_per_host_max=SOCKETS_PER_HOST_MAX,
            timeout_s=timeout_s,
            connect_timeout_s=CONNECT_TIMEOUT_S,
        )

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpResult:
        """Send a request. A missing, late or oversized response results in `OutcomeUnknown`.

        Returns `NotContacted` if no connection was made and the request therefore cannot have been
        received. Redirects are not followed, and responses are not decompressed.
        """
        import aiohttp  # imported here because most commands do not call a gateway

        release_slot()
        try:
            async with self._session.open().request(
                method,
                make_exact_url(url),
                data=body,
                headers={"Accept-Encoding": "identity", **headers},
                allow_redirects=False,
            ) as response:
                return await self._read_body(response)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return _connection_failure(error)
        except TimeoutError:
            return OutcomeUnknown(detail=f"no response within {self._timeout_s:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # The message is omitted because it may contain the URL, which may contain a key.
            return OutcomeUnknown(detail=f"no response: {type(error).__name__}")

    async def close(self) -> None:
        await self._session.close()

    async def _read_body(self, response: "aiohttp.ClientResponse") -> HttpResult:
        body = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            body += chunk
            if len(body) > self._response_bytes_max:
                response.close()
                return OutcomeUnknown(
                    detail=f"the response exceeds {self._response_bytes_max} bytes"
                )
        return HttpResponse(response.status, bytes(body), response.headers.get("Date", ""))


def _connection_failure(error: Exception) -> NotContacted:
    """Describe a connection failure without the error's message, which may contain the URL."""
    import aiohttp

    name = type(error).__name__
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        # OpenSSL's reason, such as "self-signed certificate".
        reason = str(getattr(error.certificate_error, "verify_message", "")) or "not verified"
        detail = f"no connection: {name}: {reason}"
        return NotContacted(detail=detail, problem=AccountProblem.TLS)
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return NotContacted(detail=f"no connection: {name}", problem=AccountProblem.TLS)
    return NotContacted(detail=f"no connection: {name}")
