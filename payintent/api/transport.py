"""A transport that joins writes, and the error responses that a connection sends itself."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from payintent.domain.errors import ErrorCode
from payintent.json_format import encode_json

#: The status line without the version, and a JSON body.
ErrorResponse = tuple[bytes, bytes]


def _error(status: str, code: ErrorCode, message: str) -> ErrorResponse:
    return status.encode(), encode_json({"code": code, "message": message})


_MALFORMED_STATUS, _TIMEOUT_STATUS = "400 Bad Request", "408 Request Timeout"
_CODE = ErrorCode.BAD_REQUEST
MALFORMED = _error(_MALFORMED_STATUS, _CODE, "malformed HTTP request")
NO_CLEAR_HOST = _error(
    _MALFORMED_STATUS, _CODE, "a request must have exactly one valid Host header"
)
TOO_MANY_PIPELINED = _error(_MALFORMED_STATUS, _CODE, "too many pipelined requests")
HEADERS_TOO_LARGE = _error(
    "431 Request Header Fields Too Large", _CODE, "the headers are too large"
)
HEADERS_TOO_SLOW = _error(_TIMEOUT_STATUS, _CODE, "the headers took too long")
BODY_TOO_LARGE = _error("413 Content Too Large", _CODE, "the body is too large")
BODY_TOO_SLOW = _error(_TIMEOUT_STATUS, _CODE, "the body took too long")
TOO_MANY_CONNECTIONS = _error(
    "503 Service Unavailable",
    ErrorCode.SERVICE_UNAVAILABLE,
    "too many connections; try again later",
)


def encode_error(error: ErrorResponse, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the bytes of an error response, which is the last of its connection."""
    status, body = error
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return (
        b"HTTP/1.1 %b\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\n"
        b"connection: close\r\n\r\n%b" % (status, lines, len(body), body)
    )


class JoinedTransport:
    """Sends the head and body of a response, two writes, together; `end` replaces `close`."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        end: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []
        self.is_closing = transport.is_closing
        self.close = end

    def write(self, data: bytes) -> None:
        """Send bytes together with all other writes of this event loop iteration."""
        if not self._pieces:
            self._loop.call_soon(self.flush)  # a streamed response may end much later
        self._pieces.append(data)

    def flush(self) -> None:
        if self._pieces and not self.is_closing():
            self._transport.write(b"".join(self._pieces))
        self._pieces.clear()

    def close_now(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
