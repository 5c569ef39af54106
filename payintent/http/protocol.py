"""The HTTP/1.1 protocol, with limits on message size and time.

A request is started only after its whole body has arrived, so a slow client occupies only a
connection. Upgrades are not supported: the upgrade headers are ignored. If a message is rejected,
any further input on the connection is discarded.
"""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import httptools
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from payintent.http.admission import Admission, QueuedRequest, Slot, run_in_slot
from payintent.http.bodies import content_length, head_bytes
from payintent.http.errors import random_retry_s
from payintent.http.listeners import (
    BODY_TOO_LARGE,
    BODY_TOO_SLOW,
    HEADERS_TOO_LARGE,
    HEADERS_TOO_SLOW,
    MALFORMED,
    NO_CLEAR_HOST,
    TOO_MANY_CONNECTIONS,
    TOO_MANY_PIPELINED,
    ErrorResponse,
    JoinedTransport,
    encode_error,
    shed,
)
from payintent.http.middleware import headers_of, is_host_clear
from payintent.runtime.settings import Settings

_FRAMING_PER_BYTE = 16  # maximum overhead of a chunked body, with a single byte per chunk
_PIPELINED_MAX = 100
_LINGER_S = 2.0  # how long input is discarded after we have closed our side
_CALLBACKS = b"/v1/callbacks/"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(slots=True)
class Bounds:
    """Limits and state shared by all connections of a server."""

    settings: Settings
    admission: Admission
    connections_max: int
    draining: bool = False  # if true, connections close after their next response
    idle: "dict[LimitedProtocol, None]" = field(default_factory=dict["LimitedProtocol", None])


def limited_protocol(settings: Settings, connections_max: int) -> "type[LimitedProtocol]":
    """Create a protocol class with these limits; uvicorn expects a class, not an instance."""
    bounds = Bounds(settings, Admission(settings), connections_max)
    return type("Limited", (LimitedProtocol,), {"bounds": bounds})


class _RequestRefusedError(Exception):
    """Stops the parser; the connection's `_error` is the response."""


class LimitedProtocol(HttpToolsProtocol):
    """Rejects requests that are too large, too slow, or ambiguous."""

    bounds: Bounds

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._service: Any = self.app  # pyright: ignore[reportUnknownMemberType]
        self._header_bytes = 0  # of the current message: headers, trailers and chunk framing
        self._body_bytes = 0
        self._header_bytes_bound = 0  # upper bound on the headers that this input completes
        self._in_headers = True
        self._is_upgrade = False  # if true, the parser assumes that the message has no body
        self._is_over = False  # if true, further input is discarded
        self._timer: asyncio.TimerHandle | None = None  # for receiving the headers or the body
        self._closing: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None  # while the client does not read
        self._error = MALFORMED
        self._final_error: bytes | None = None  # to send after the pending responses
        self._current: RequestResponseCycle | None = None  # the oldest unanswered request
        self._incoming: RequestResponseCycle | None = None  # the request whose body is incomplete
        self._slot: Slot | None = None  # held by the running request

    # Connection lifecycle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._joined = JoinedTransport(transport, self.loop, self._end)
        super().connection_made(cast("asyncio.Transport", self._joined))
        if len(self.connections) > self.bounds.connections_max and not self._make_room():
            wait = (b"retry-after", b"%d" % random_retry_s())
            self.transport.write(encode_error(TOO_MANY_CONNECTIONS, [wait]))
            self._is_over = True
            self._close_now()
            return
        self.bounds.idle[self] = None
        self._start_timer(self.bounds.settings.header_timeout_s, self._headers_too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self.bounds.idle.pop(self, None)
        self._stop_timer()
        for timer in (self._closing, self._stalled):
            if timer is not None:
                timer.cancel()
        self._abandon_requests()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """Abandon unanswered requests, because the client has disconnected."""
        self._abandon_requests()

    def shutdown(self) -> None:
        """Shut down gracefully. A request with an incomplete body is dropped."""
        if self._incoming is not None and self._incoming is self._current:
            self._is_over = True
            self._close_now()
        else:
            super().shutdown()

    @property
    def expects_request(self) -> bool:
        """Whether the first request, or the rest of a partial request, is still to arrive."""
        is_open = not self.transport.is_closing()
        return is_open and (self._current is None or self._header_bytes > 0)

    def drain(self) -> None:
        """Close the connection after the pending response, unless that response has started."""
        cycle = self._current
        if cycle is not None and not cycle.response_started and not self.pipeline:
            cycle.keep_alive = False

    # Input

    def data_received(self, data: bytes) -> None:
        if self._is_over or self.transport.is_closing():
            return
        self.bounds.idle.pop(self, None)
        self._unset_keepalive_if_required()
        self._header_bytes += len(data)
        self._header_bytes_bound = self._header_bytes
        try:
            self._parse(data)
        except httptools.HttpParserError:
            if not self._is_over:
                self._refuse(self._error)
            return
        if self._header_bytes > self.bounds.settings.header_bytes_max + (
            _FRAMING_PER_BYTE * self._body_bytes
        ):
            self._refuse(HEADERS_TOO_LARGE)
        elif self._incoming is not None:
            self._await_body()
        elif self._in_headers and self._header_bytes and self._timer is None:
            self._start_timer(self.bounds.settings.header_timeout_s, self._headers_too_slow)

    def _parse(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                self._parse_without_upgrade()
            else:
                return

    def _parse_without_upgrade(self) -> None:
        """Re-parse the message without its `upgrade` header, so that its body is parsed too."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self._is_upgrade = False
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(b"\r\n".join([*lines, b"", b""]))

    # Parser callbacks

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
        limit = self.bounds.settings.header_bytes_max
        if self._header_bytes_bound > limit and head_bytes(self.url, self.headers) > limit:
            self._error = HEADERS_TOO_LARGE
            raise _RequestRefusedError
        if not is_host_clear(self.parser.get_http_version(), self.url, self.headers):
            self._error = NO_CLEAR_HOST
            raise _RequestRefusedError
        if len(self.pipeline) >= _PIPELINED_MAX:
            self._error = TOO_MANY_PIPELINED
            raise _RequestRefusedError
        super().on_headers_complete()
        self._in_headers = False

    def on_body(self, body: bytes) -> None:
        self._header_bytes -= len(body)
        self._body_bytes += len(body)
        self.cycle.body += body
        if len(self.cycle.body) > self._body_bytes_max():
            self._error = BODY_TOO_LARGE
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

    # Running requests

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start the next request if its body has arrived."""
        del app
        self._current = cycle
        if cycle.more_body:
            self._incoming = cycle
        else:
            self._admit(cycle)

    def _admit(self, cycle: RequestResponseCycle) -> None:
        lane = self.bounds.admission.lane(cycle.scope["path"])
        if lane is None:
            self._run(cycle, self._service)
            return
        lane.enter(
            QueuedRequest(
                start=lambda slot: self._run(cycle, self._service, slot),
                shed=lambda: self._run(cycle, shed),
                is_disconnected=lambda: cycle.disconnected,
            )
        )

    def _run(self, cycle: RequestResponseCycle, app: Any, slot: Slot | None = None) -> None:
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
            if self._final_error is not None and self._is_answered():
                self.transport.write(self._final_error)
                self._end()
        elif self._incoming is not None:
            self._await_body()
        elif self._is_answered():
            self.bounds.idle[self] = None

    def pause_writing(self) -> None:
        """Release the request's slot, because the client does not read the response."""
        super().pause_writing()
        self._release_slot()
        wait_s = self.bounds.settings.body_timeout_s
        self._stalled = self.loop.call_later(wait_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    # Timeouts

    def _start_timer(self, seconds: float, on_timeout: Callable[[], None]) -> None:
        self._timer = self.loop.call_later(seconds, on_timeout)

    def _await_body(self) -> None:
        """Start the body timeout, and send `100 Continue` if the client expects it."""
        cycle = self._incoming
        if cycle is None or self._timer is not None:
            return
        if content_length(cycle.scope["headers"]) > self._body_bytes_max():
            self._refuse(BODY_TOO_LARGE)
            return
        if cycle.waiting_for_100_continue:
            cycle.waiting_for_100_continue = False
            self.transport.write(_CONTINUE)
            self._joined.flush()
        self._start_timer(self.bounds.settings.body_timeout_s, self._body_too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _headers_too_slow(self) -> None:
        if self._header_bytes:
            self._refuse(HEADERS_TOO_SLOW)
        else:
            self.transport.close()  # no request has begun, so there is nothing to respond to

    def _body_too_slow(self) -> None:
        self._refuse(BODY_TOO_SLOW)

    # Closing

    def _refuse(self, error: ErrorResponse) -> None:
        """Stop parsing, and send the error once all earlier requests have been answered."""
        if self.transport.is_closing():
            return
        self._stop_timer()
        self._is_over = True
        if self._in_headers:
            response = encode_error(error, [(b"x-request-id", secrets.token_hex(16).encode())])
        else:
            response = encode_error(error, headers_of(cast("Scope", self.cycle.scope)))
            self._forget(self.cycle)
        if self._is_answered():
            self.transport.write(response)
            self._end()
        else:
            self._final_error = response

    def _forget(self, cycle: RequestResponseCycle) -> None:
        """Drop a request whose body is incomplete."""
        cycle.disconnected = True
        self._incoming = None
        if cycle is self._current:
            self._current = None
        else:
            remaining = (entry for entry in self.pipeline if entry[0] is not cycle)
            self.pipeline = type(self.pipeline)(remaining)

    def _is_answered(self) -> bool:
        return not self.pipeline and (self._current is None or self._current.response_complete)

    def _end(self) -> None:
        """Close our side, but discard input for a while: a reset could lose our response."""
        self._is_over = True
        if self._closing is not None or (self._in_headers and not self._header_bytes):
            self._close_now()
        elif not self.transport.is_closing():
            self._joined.flush()
            self._closing = self.loop.call_later(_LINGER_S, self.transport.abort)
            self.transport.write_eof()

    def _close_now(self) -> None:
        """Close, then abort the connection if the client does not read the response in time."""
        self._joined.close_now()
        if self._closing is not None:
            self._closing.cancel()
        wait_s = self.bounds.settings.body_timeout_s
        self._closing = self.loop.call_later(wait_s, self.transport.abort)

    def _abandon_requests(self) -> None:
        for cycle in (self._current, *(entry[0] for entry in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True

    def _release_slot(self) -> None:
        if self._slot is not None:
            self._slot.release()

    def _make_room(self) -> bool:
        """Close the longest-idle connection; return False if none is idle."""
        for idle in self.bounds.idle:
            del self.bounds.idle[idle]
            idle.transport.close()
            return True
        return False

    def _body_bytes_max(self) -> int:
        settings, is_callback = self.bounds.settings, self.url.startswith(_CALLBACKS)
        return settings.callback_bytes_max if is_callback else settings.body_bytes_max
