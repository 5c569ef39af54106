"""The HTTP server, with the limits that it lacks: header size, and the time headers may take."""

import asyncio
import gc
import secrets
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import uvicorn
import uvloop
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from payintent.config import Settings

_KEEP_ALIVE_S = 75
_STOP_WAIT_S = 20
_BACKLOG = 2_048
_FRAMING_PER_BYTE = 16  # of a chunked body, at most: one byte a chunk, and its size in hexadecimal
# Requests leave few cycles behind; looking for them every 700 objects takes a tenth of the CPU.
_GARBAGE_OBJECTS = 50_000
_NOT_STARTED = 3  # what uvicorn itself ends with
_MALFORMED = (b"400 Bad Request", b'{"code":"BAD_REQUEST","message":"malformed HTTP request"}')
_TOO_LARGE = (
    b"431 Request Header Fields Too Large",
    b'{"code":"BAD_REQUEST","message":"the headers are too large"}',
)
_TOO_SLOW = (
    b"408 Request Timeout",
    b'{"code":"BAD_REQUEST","message":"the headers took too long"}',
)


def serve(servers: Sequence[uvicorn.Server], stopping: Callable[[], None] = lambda: None) -> None:
    """Serve on several ports until SIGTERM or Ctrl-C, then finish what is under way.

    `stopping` is called first, to end answers that would go on for ever.
    """
    gc.freeze()  # what is loaded by now stays
    gc.set_threshold(_GARBAGE_OBJECTS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(servers, stopping))
    if not all(one.started for one in servers):
        raise SystemExit(_NOT_STARTED)


async def _serve(servers: Sequence[uvicorn.Server], stopping: Callable[[], None]) -> None:
    def stop() -> None:
        stopping()
        for one in servers:
            one.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await asyncio.gather(*(one.serve() for one in servers))


class _Server(uvicorn.Server):
    """A server that leaves signals to whoever runs several of them."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


def server(
    app: ASGIApp, settings: Settings, host: str, port: int, *, lifespan: bool = True
) -> uvicorn.Server:
    """Make a server with our limits; `lifespan` says whether the app opens something first."""
    return _Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            http=limited_protocol(settings.header_bytes_max, settings.header_timeout_s),
            ws="none",
            loop="uvloop",
            backlog=_BACKLOG,
            access_log=False,
            proxy_headers=False,  # nobody may choose the address that we see
            log_level="error",
            server_header=False,
            lifespan="on" if lifespan else "off",
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_STOP_WAIT_S,
        )
    )


class _Refused(Exception):  # noqa: N818
    """Stops the parser; the answer is on its way."""


def limited_protocol(bytes_max: int, timeout_s: float) -> type[HttpToolsProtocol]:
    """Make the protocol with these limits; the server wants a class."""
    return type("Limited", (LimitedProtocol,), {"bytes_max": bytes_max, "timeout_s": timeout_s})


class LimitedProtocol(HttpToolsProtocol):
    """Cuts off callers whose headers are too large or too slow."""

    bytes_max: int
    timeout_s: float

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_bytes = 0  # of this message: whatever is no body, trailers and framing too
        self._body_bytes = 0
        self._received = 0
        self._in_headers = True
        self._timer: asyncio.TimerHandle | None = None
        self._answer = _MALFORMED

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._joined = _Joined(transport, self.loop)
        super().connection_made(cast("asyncio.Transport", self._joined))
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._header_bytes += len(data)
        self._received = self._header_bytes  # no header that ends in here can be larger
        super().data_received(data)
        if self._header_bytes > self.bytes_max + _FRAMING_PER_BYTE * self._body_bytes:
            self._refuse(_TOO_LARGE)
        elif self._in_headers and self._header_bytes and self._timer is None:
            self._start_timer()

    def on_headers_complete(self) -> None:
        self._stop_timer()
        if self._received > self.bytes_max and _size(self.url, self.headers) > self.bytes_max:
            self._answer = _TOO_LARGE
            raise _Refused
        self._in_headers = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._header_bytes -= len(body)
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_headers = True
        self._header_bytes = self._body_bytes = 0

    def on_response_complete(self) -> None:
        self._joined.flush()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        del msg
        self._refuse(self._answer)

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self.timeout_s, self._too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        if self._header_bytes:
            self._refuse(_TOO_SLOW)
        else:
            self.transport.close()  # a connection that never asked anything gets no answer

    def _refuse(self, answer: tuple[bytes, bytes]) -> None:
        if self.transport.is_closing():
            return
        status, body = answer
        self.transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"x-request-id: %b\r\nconnection: close\r\n\r\n%b"
            % (status, len(body), secrets.token_hex(16).encode(), body)
        )
        self.transport.close()


class _Joined:
    """A transport that sends an answer's head and body, two writes, as one packet."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if not self._pieces:
            self._loop.call_soon(self.flush)  # for a stream, whose end may be far
        self._pieces.append(data)

    def flush(self) -> None:
        if self._pieces and not self.is_closing():
            self._transport.write(b"".join(self._pieces))
        self._pieces.clear()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _size(url: bytes, headers: list[tuple[bytes, bytes]]) -> int:
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)
