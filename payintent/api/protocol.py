"""One HTTP/1.1 connection: the parser's limits in size and time, and one message after the other.

A request is begun only when all of it has arrived, so a slow client holds nothing but a
connection. No upgrade is ever made: a request for one is read as if it had not asked. What
comes after a message that could not be read to its end is not parsed.
"""

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import Any, cast

import httptools
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from payintent.api.errors import again_s
from payintent.api.gate import Gate, Slot, Waiting, run_in_slot
from payintent.api.host_header import is_host_clear
from payintent.api.middleware import headers_of
from payintent.api.overload import shed
from payintent.api.request_body import announced_bytes, head_bytes
from payintent.api.transport import (
    BODY_TOO_LARGE,
    BODY_TOO_SLOW,
    HEADERS_TOO_LARGE,
    HEADERS_TOO_SLOW,
    MALFORMED,
    NO_CLEAR_HOST,
    TOO_MANY_CONNECTIONS,
    TOO_MANY_PIPELINED,
    JoinedTransport,
    Words,
    written,
)
from payintent.config import Settings

_FRAMING_PER_BYTE = 16  # of a chunked body, at most: one byte a chunk, and its size in hexadecimal
_PIPELINED_MAX = 100  # requests that wait for the answers before them
_LINGER_S = 2.0  # how long a client may still send to a connection that we have ended
_CALLBACKS = b"/v1/callbacks/"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(slots=True)
class Bounds:
    """The limits and counters that all connections of one server share."""

    settings: Settings
    gate: Gate
    connections_max: int
    draining: bool = False  # every answer is the last one of its connection
    idle: "dict[LimitedProtocol, None]" = field(default_factory=dict["LimitedProtocol", None])


def limited_protocol(settings: Settings, connections_max: int) -> "type[LimitedProtocol]":
    """Return the protocol class of one server with these limits; uvicorn takes a class."""
    bounds = Bounds(settings, Gate(settings), connections_max)
    return type("Limited", (LimitedProtocol,), {"bounds": bounds})


class _RequestRefusedError(Exception):
    """Stops the parser; the answer is already written."""


class LimitedProtocol(HttpToolsProtocol):
    """Cuts off clients whose requests are too large, too slow, or ambiguous."""

    bounds: Bounds

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._service: Any = self.app  # pyright: ignore[reportUnknownMemberType]
        self._header_bytes = 0  # of this message: all bytes but the body, trailers and framing too
        self._body_bytes = 0
        self._received = 0
        self._in_headers = True
        self._is_upgrade = False  # the parser believes that the message ends with its headers
        self._is_over = False  # nothing is parsed any more
        self._timer: asyncio.TimerHandle | None = None  # for headers or body, whichever is awaited
        self._closing: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None  # the client reads no answer
        self._answer = MALFORMED
        self._last_words: bytes | None = None  # sent after the answers that are under way
        self._current: RequestResponseCycle | None = None  # the oldest without its answer
        self._incoming: RequestResponseCycle | None = None  # its body has not arrived
        self._slot: Slot | None = None  # of the request that is under way

    # A connection begins and ends

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._joined = JoinedTransport(transport, self.loop, self._end)
        super().connection_made(cast("asyncio.Transport", self._joined))
        if len(self.connections) > self.bounds.connections_max and not self._make_room():
            wait = (b"retry-after", b"%d" % again_s())
            self.transport.write(written(TOO_MANY_CONNECTIONS, [wait]))
            self._is_over = True
            self._close_now()
            return
        self.bounds.idle[self] = None
        self._await(self.bounds.settings.header_timeout_s, self._headers_too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self.bounds.idle.pop(self, None)
        self._stop_timer()
        for timer in (self._closing, self._stalled):
            if timer is not None:
                timer.cancel()
        self._leave_behind()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """Record that the client has gone: requests not begun never are."""
        self._leave_behind()

    def shutdown(self) -> None:
        """Shut down as the server does; a request without its whole body is dropped."""
        if self._incoming is not None and self._incoming is self._current:
            self._is_over = True
            self._close_now()
        else:
            super().shutdown()

    @property
    def is_awaited(self) -> bool:
        """Tell whether the connection's first request, or the rest of one, has yet to come."""
        is_open = not self.transport.is_closing()
        return is_open and (self._current is None or self._header_bytes > 0)

    def drain(self) -> None:
        """Say that the answer under way is the last one, unless it has begun."""
        cycle = self._current
        if cycle is not None and not cycle.response_started and not self.pipeline:
            cycle.keep_alive = False

    # Bytes come in

    def data_received(self, data: bytes) -> None:
        if self._is_over or self.transport.is_closing():
            return
        self.bounds.idle.pop(self, None)
        self._unset_keepalive_if_required()
        self._header_bytes += len(data)
        self._received = self._header_bytes  # no header that ends in these bytes can be larger
        try:
            self._parse(data)
        except httptools.HttpParserError:
            if not self._is_over:
                self._refuse(self._answer)
            return
        if self._header_bytes > self.bounds.settings.header_bytes_max + (
            _FRAMING_PER_BYTE * self._body_bytes
        ):
            self._refuse(HEADERS_TOO_LARGE)
        elif self._incoming is not None:
            self._await_body()
        elif self._in_headers and self._header_bytes and self._timer is None:
            self._await(self.bounds.settings.header_timeout_s, self._headers_too_slow)

    def _parse(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as stopped:
                data = data[stopped.args[0] :]
                self._read_plainly()
            else:
                return

    def _read_plainly(self) -> None:
        """Parse the headers again without the upgrade request, so that the body is read."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self._is_upgrade = False
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(b"\r\n".join([*lines, b"", b""]))

    # A message, as the parser finds it

    def on_message_begin(self) -> None:
        if self._is_over:
            raise _RequestRefusedError
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self.parser.get_method() == b"CONNECT":
            raise _RequestRefusedError
        if self.parser.should_upgrade():
            self._is_upgrade = True
            return
        self._stop_timer()
        most = self.bounds.settings.header_bytes_max
        if self._received > most and head_bytes(self.url, self.headers) > most:
            self._answer = HEADERS_TOO_LARGE
            raise _RequestRefusedError
        if not is_host_clear(self.parser.get_http_version(), self.url, self.headers):
            self._answer = NO_CLEAR_HOST
            raise _RequestRefusedError
        if len(self.pipeline) >= _PIPELINED_MAX:
            self._answer = TOO_MANY_PIPELINED
            raise _RequestRefusedError
        super().on_headers_complete()
        self._in_headers = False

    def on_body(self, body: bytes) -> None:
        self._header_bytes -= len(body)
        self._body_bytes += len(body)
        self.cycle.body += body
        if len(self.cycle.body) > self._body_bytes_max():
            self._answer = BODY_TOO_LARGE
            raise _RequestRefusedError

    def on_message_complete(self) -> None:
        if self._is_upgrade:
            return
        cycle = self.cycle
        cycle.more_body = False
        cycle.message_event.set()
        self._in_headers = True
        self._header_bytes = self._body_bytes = 0
        self._is_over = not self.parser.should_keep_alive()
        if cycle is self._incoming:
            self._stop_timer()
            self._incoming = None
            self._admit(cycle)

    # A request is begun, waits, or is shed

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Take the next request; it is begun when its body has arrived."""
        del app
        self._current = cycle
        if cycle.more_body:
            self._incoming = cycle
        else:
            self._admit(cycle)

    def _admit(self, cycle: RequestResponseCycle) -> None:
        lane = self.bounds.gate.lane(cycle.scope["path"])
        if lane is None:
            self._begin(cycle, self._service)
            return
        lane.enter(
            Waiting(
                lambda slot: self._begin(cycle, self._service, slot),
                lambda: self._begin(cycle, shed),
                lambda: cycle.disconnected,
            )
        )

    def _begin(self, cycle: RequestResponseCycle, app: Any, slot: Slot | None = None) -> None:
        self._slot = slot
        if self.bounds.draining and not self.pipeline:
            cycle.keep_alive = False
        task = self.loop.create_task(run_in_slot(cycle, app, slot))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def on_response_complete(self) -> None:
        self._joined.flush()
        self._release_slot()
        if self._closing is not None:
            return
        super().on_response_complete()
        if self._is_over or self.transport.is_closing():
            if self._last_words is not None and self._is_answered():
                self.transport.write(self._last_words)
                self._end()
        elif self._incoming is not None:
            self._await_body()
        elif self._is_answered():
            self.bounds.idle[self] = None

    def pause_writing(self) -> None:
        """Release the request's slot while its client reads no answer."""
        super().pause_writing()
        self._release_slot()
        wait_s = self.bounds.settings.body_timeout_s
        self._stalled = self.loop.call_later(wait_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    # Time

    def _await(self, seconds: float, late: Any) -> None:
        self._timer = self.loop.call_later(seconds, late)

    def _await_body(self) -> None:
        """Wait for the rest of the body of the request whose turn it is."""
        cycle = self._incoming
        if cycle is None or self._timer is not None:
            return
        if announced_bytes(cycle.scope["headers"]) > self._body_bytes_max():
            self._refuse(BODY_TOO_LARGE)
            return
        if cycle.waiting_for_100_continue:
            cycle.waiting_for_100_continue = False
            self.transport.write(_CONTINUE)
            self._joined.flush()
        self._await(self.bounds.settings.body_timeout_s, self._body_too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _headers_too_slow(self) -> None:
        if self._header_bytes:
            self._refuse(HEADERS_TOO_SLOW)
        else:
            self.transport.close()  # a connection that never sent a request gets no answer

    def _body_too_slow(self) -> None:
        self._refuse(BODY_TOO_SLOW)

    # The end of a connection

    def _refuse(self, words: Words) -> None:
        """Stop parsing; send the error after the answers to earlier requests."""
        if self.transport.is_closing():
            return
        self._stop_timer()
        self._is_over = True
        if self._in_headers:
            answer = written(words, [(b"x-request-id", secrets.token_hex(16).encode())])
        else:
            answer = written(words, headers_of(cast("Scope", self.cycle.scope)))
            self._forget(self.cycle)
        if self._is_answered():
            self.transport.write(answer)
            self._end()
        else:
            self._last_words = answer

    def _forget(self, cycle: RequestResponseCycle) -> None:
        """Drop a request that was not read to its end; it was not begun."""
        cycle.disconnected = True
        self._incoming = None
        if cycle is self._current:
            self._current = None
        else:
            kept = (entry for entry in self.pipeline if entry[0] is not cycle)
            self.pipeline = type(self.pipeline)(kept)

    def _is_answered(self) -> bool:
        return not self.pipeline and (self._current is None or self._current.response_complete)

    def _end(self) -> None:
        """Close; what the client still sends is discarded: a reset would lose our answer."""
        self._is_over = True
        if self._closing is not None or (self._in_headers and not self._header_bytes):
            self._close_now()
        elif not self.transport.is_closing():
            self._joined.flush()
            self._closing = self.loop.call_later(_LINGER_S, self.transport.abort)
            self.transport.write_eof()

    def _close_now(self) -> None:
        """Close, and cut off a client that does not read what was written."""
        self._joined.close_now()
        if self._closing is not None:
            self._closing.cancel()
        wait_s = self.bounds.settings.body_timeout_s
        self._closing = self.loop.call_later(wait_s, self.transport.abort)

    def _leave_behind(self) -> None:
        """Mark every request of this connection as abandoned."""
        for cycle in (self._current, *(entry[0] for entry in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True

    def _release_slot(self) -> None:
        if self._slot is not None:
            self._slot.release()

    def _make_room(self) -> bool:
        """Close the connection that has been idle longest; False where none is idle."""
        for idle in self.bounds.idle:
            del self.bounds.idle[idle]
            idle.transport.close()
            return True
        return False

    def _body_bytes_max(self) -> int:
        settings, is_callback = self.bounds.settings, self.url.startswith(_CALLBACKS)
        return settings.callback_bytes_max if is_callback else settings.body_bytes_max
