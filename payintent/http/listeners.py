"""Listening sockets, a transport that combines writes, and connection-level error responses."""

import asyncio
import ctypes
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from payintent.core.errors import ErrorCode
from payintent.http.errors import error_response, random_retry_s
from payintent.http.middleware import CommonHeaders, content_security_policy
from payintent.runtime.json_format import encode_json
from payintent.runtime.processes.board import ConnectionShare

#: The status line without the HTTP version, and the JSON body.
ErrorResponse = tuple[bytes, bytes]


def _make_error(
    status: str, message: str, code: ErrorCode = ErrorCode.BAD_REQUEST
) -> ErrorResponse:
    return status.encode(), encode_json({"code": code, "message": message})


MALFORMED_REQUEST = _make_error("400 Bad Request", "malformed HTTP request")
AMBIGUOUS_HOST = _make_error("400 Bad Request", "a request must have exactly one valid Host header")
TOO_MANY_PIPELINED = _make_error("400 Bad Request", "too many pipelined requests")
HEADERS_TOO_LARGE = _make_error("431 Request Header Fields Too Large", "the headers are too large")
HEADERS_TOO_SLOW = _make_error("408 Request Timeout", "the headers took too long")
BODY_TOO_LARGE = _make_error("413 Content Too Large", "the body is too large")
BODY_TOO_SLOW = _make_error("408 Request Timeout", "the body took too long")
TOO_MANY_CONNECTIONS = _make_error(
    "503 Service Unavailable",
    "too many connections; try again later",
    ErrorCode.SERVICE_UNAVAILABLE,
)


def encode_error(error: ErrorResponse, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Encode an error response that closes the connection."""
    status, body = error
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return (
        b"HTTP/1.1 %b\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\n"
        b"connection: close\r\n\r\n%b" % (status, lines, len(body), body)
    )


class BufferedTransport:
    """Combines the writes of a response's head and body. `close` overrides the base method."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        close: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._chunks: list[bytes] = []
        self.is_closing = transport.is_closing
        self.close = close

    def write(self, data: bytes) -> None:
        """Send bytes together with all other writes in this event loop iteration."""
        if not self._chunks:
            self._loop.call_soon(self.flush)  # do not wait for the end of a streamed response
        self._chunks.append(data)

    def flush(self) -> None:
        if self._chunks and not self.is_closing():
            self._transport.write(b"".join(self._chunks))
        self._chunks.clear()

    def close_now(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


_PAGE_PREFIXES = ("/c/", "/merchant")
_BUSY_PAGE = (
    "<!doctype html><title>Just a moment</title>"
    "<p>We are very busy at the moment. Please try again in a few seconds."
)


async def _respond_busy(scope: Scope, receive: Receive, send: Send) -> None:
    wait_s = random_retry_s()
    if scope["path"].startswith(_PAGE_PREFIXES):
        headers = {"Retry-After": str(wait_s), "Content-Security-Policy": content_security_policy()}
        response = Response(_BUSY_PAGE, 503, headers, "text/html")
    else:
        message = "too many concurrent requests; try again later"
        response = error_response(ErrorCode.SERVICE_UNAVAILABLE, message, retry_after_s=wait_s)
    await response(scope, receive, send)


#: Responds to shed requests.
busy_application = CommonHeaders(_respond_busy)


#: Time for pending handshakes to complete, and for the event loop to accept their connections.
_SETTLE_S, _SETTLE_ROUNDS = 0.005, 5
_SO_ATTACH_FILTER = 26  # asm-generic/socket.h
#: A classic BPF program on TCP segments: code, jump if true, jump if false, operand.
_DROP_NEW_CONNECTIONS = (
    (0x30, 0, 0, 13),  # load the flags byte
    (0x54, 0, 0, 0x12),  # mask SYN and ACK
    (0x15, 0, 1, 0x02),  # only SYN is set: a new connection
    (0x06, 0, 0, 0),  # drop
    (0x06, 0, 0, 0xFFFFFFFF),  # pass
)


class Listener(Protocol):
    @property
    def sockets(self) -> Sequence[socket.socket]: ...

    def close(self) -> None: ...


async def stop_listening(servers: Iterable[Listener]) -> None:
    """Accept all queued connections, then close the sockets, so that no connection is reset."""
    open_servers = list(servers)
    for server in open_servers:
        _drop_new_connections(server.sockets)
    for _ in range(_SETTLE_ROUNDS):
        await asyncio.sleep(_SETTLE_S)
    for server in open_servers:
        server.close()


def _drop_new_connections(sockets: Sequence[socket.socket]) -> None:
    """Drop the first packet of each new connection if the operating system supports it."""
    if sys.platform != "linux":
        return
    program = b"".join(struct.pack("HBBI", *instruction) for instruction in _DROP_NEW_CONNECTIONS)
    buffer = ctypes.create_string_buffer(program)
    option = struct.pack("HP", len(_DROP_NEW_CONNECTIONS), ctypes.addressof(buffer))
    for listener in sockets:
        with suppress(OSError):  # without the filter, a connection may be reset
            listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, option)


_DELAY_S, _DELAYS_MAX = 0.001, 3  # while another process may accept a connection
_RETRY_S = 1.0  # after a failed accept, for example when file descriptors run out


class SharedListener:
    """Accepts connections from sockets that may be shared with other processes.

    A process briefly leaves new connections to any process that has fewer connections.
    """

    def __init__(
        self, sockets: Sequence[socket.socket], backlog: int, share: ConnectionShare | None = None
    ) -> None:
        self.sockets = list(sockets)
        self._backlog = backlog
        self._share = share
        self._delays = 0
        self._accept_tasks: set[asyncio.Task[object]] = set()

    def start(
        self, make_protocol: Callable[[], asyncio.Protocol], count_connections: Callable[[], int]
    ) -> None:
        """Start listening; `count_connections` returns this process's number of connections."""
        self._make_protocol = make_protocol
        self._count_connections = count_connections
        for listener in self.sockets:
            listener.listen(self._backlog)
            self._resume_accepting(listener)
        if self._share is not None:
            self._share.publish(0)

    def close(self) -> None:
        """Accept all pending connections, then close the sockets."""
        for listener in self.sockets:
            with suppress(OSError):
                while self._accept(listener):
                    pass
        self.detach()

    def detach(self) -> None:
        """Close the sockets, but leave pending connections to the processes that share them."""
        if self._share is not None:
            self._share.withdraw()
        for listener in self.sockets:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        self.sockets = []

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._accept_tasks, return_exceptions=True)

    def _accept_or_delay(self, listener: socket.socket) -> None:
        if self._is_above_minimum() and self._delays < _DELAYS_MAX:
            self._delays += 1
            self._pause_accepting(listener, _DELAY_S)
            return
        self._delays = 0
        try:
            self._accept(listener)
        except OSError:
            self._pause_accepting(listener, _RETRY_S)

    def _is_above_minimum(self) -> bool:
        """Return whether another process has fewer connections."""
        if self._share is None:
            return False
        count = self._count_connections() + len(self._accept_tasks)
        self._share.publish(count)
        return self._share.is_above_minimum(count)

    def _pause_accepting(self, listener: socket.socket, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        loop.call_later(seconds, self._resume_accepting, listener)

    def _resume_accepting(self, listener: socket.socket) -> None:
        if listener in self.sockets:
            asyncio.get_running_loop().add_reader(listener, self._accept_or_delay, listener)

    def _accept(self, listener: socket.socket) -> bool:
        """Accept a connection. Returns False if none is pending. Raises `OSError` on failure."""
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        coroutine = loop.connect_accepted_socket(self._make_protocol, connection)
        task: asyncio.Task[object] = loop.create_task(coroutine)
        self._accept_tasks.add(task)
        task.add_done_callback(self._accept_tasks.discard)
        if self._share is not None:
            self._share.publish(self._count_connections() + len(self._accept_tasks))
        return True
