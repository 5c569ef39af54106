"""The HTTP/1.1 protocol, with limits on message size and time.

A request is started only after its whole body has arrived, so a slow client occupies only a
connection. Upgrades are not supported, so upgrade headers are ignored. If a message is rejected,
any further input on the connection is discarded.
"""

import asyncio
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import httptools
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from payintent.http.admission import Admission, QueuedRequest, Slot, run_in_slot
from payintent.http.bodies import count_head_bytes, get_content_length
from payintent.http.errors import random_retry_s
from payintent.http.listeners import (
    AMBIGUOUS_HOST,
    BODY_TOO_LARGE,
    BODY_TOO_SLOW,
    HEADERS_TOO_LARGE,
    HEADERS_TOO_SLOW,
    MALFORMED_REQUEST,
    TOO_MANY_CONNECTIONS,
    TOO_MANY_PIPELINED,
    BufferedTransport,
    ErrorResponse,
    busy_application,
    encode_error,
)
from payintent.http.middleware import common_headers
from payintent.runtime.settings import Settings

_FRAMING_PER_BYTE = 16  # maximum overhead of a chunked body, with a single byte per chunk
_PIPELINED_MAX = 100
_LINGER_S = 2.0  # how long input is discarded after we have closed our side
_CALLBACK_PREFIX = b"/v1/callbacks/"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(slots=True)
class SharedState:
    """The settings, limits and idle connections of a server."""

    settings: Settings
    admission: Admission
    connections_max: int
    is_draining: bool = False  # connections close after their next response
    idle_connections: "dict[LimitedProtocol, None]" = field(
        default_factory=dict["LimitedProtocol", None]
    )


def make_protocol_class(settings: Settings, connections_max: int) -> "type[LimitedProtocol]":
    """Create a protocol class with these limits; uvicorn expects a class, not an instance."""
    shared = SharedState(settings, Admission(settings), connections_max)
    return type("Limited", (LimitedProtocol,), {"shared": shared})


class _RequestRejectedError(Exception):
    """Stops the parser. The connection responds with its `_error`."""


class LimitedProtocol(HttpToolsProtocol):
    """Rejects requests that are too large, too slow, or ambiguous."""

    shared: SharedState

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._settings = self.shared.settings
        self._application: Any = self.app  # pyright: ignore[reportUnknownMemberType]
        self._header_bytes = 0  # of the current message: headers, trailers and chunk framing
        self._body_bytes = 0
        self._header_bytes_bound = 0  # upper bound on the size of headers completed by this input
        self._is_in_headers = True
        self._is_upgrade = False  # the parser assumes that an upgrade request has no body
        self._discards_input = False
        self._receive_timer: asyncio.TimerHandle | None = None  # for headers or a body
        self._close_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None  # while the client is not reading
        self._error = MALFORMED_REQUEST
        self._final_error: bytes | None = None  # to send after the pending responses
        #: The request that was last passed to the application; its response may be complete.
        self._current_cycle: RequestResponseCycle | None = None
        self._incoming_cycle: RequestResponseCycle | None = None  # its body is incomplete
        self._slot: Slot | None = None  # the running request's slot

    # Connection lifecycle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._output = BufferedTransport(transport, self.loop, self._close_gracefully)
        super().connection_made(cast("asyncio.Transport", self._output))
        if (
            len(self.connections) > self.shared.connections_max
            and not self._close_idle_connection()
        ):
            retry_header = (b"retry-after", b"%d" % random_retry_s())
            self.transport.write(encode_error(TOO_MANY_CONNECTIONS, [retry_header]))
            self._discards_input = True
            self._close_now()
            return
        self.shared.idle_connections[self] = None
        self._start_timer(self._settings.header_timeout_s, self._reject_slow_headers)

    def connection_lost(self, exc: Exception | None) -> None:
        self.shared.idle_connections.pop(self, None)
        self._stop_timer()
        for timer in (self._close_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        self._abandon_requests()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """Abandon pending requests, because the client has disconnected."""
        self._abandon_requests()

    def shutdown(self) -> None:
        """Shut down gracefully. A request with an incomplete body is dropped."""
        if self._incoming_cycle is not None and self._incoming_cycle is self._current_cycle:
            self._discards_input = True
            self._close_now()
        else:
            super().shutdown()

    @property
    def expects_request(self) -> bool:
        """Whether the first request, or the rest of a partial request, has not yet arrived."""
        is_open = not self.transport.is_closing()
        return is_open and (self._current_cycle is None or self._header_bytes > 0)

    def drain(self) -> None:
        """Close the connection after the pending response, unless that response has started."""
        cycle = self._current_cycle
        if cycle is not None and not cycle.response_started and not self.pipeline:
            cycle.keep_alive = False

    # Input

    def data_received(self, data: bytes) -> None:
        if self._discards_input or self.transport.is_closing():
            return
        self.shared.idle_connections.pop(self, None)
        self._unset_keepalive_if_required()
        self._header_bytes += len(data)
        self._header_bytes_bound = self._header_bytes
        try:
            self._parse(data)
        except httptools.HttpParserError:
            if not self._discards_input:
                self._reject(self._error)
            return
        if self._header_bytes > self._settings.header_bytes_max + (
            _FRAMING_PER_BYTE * self._body_bytes
        ):
            self._reject(HEADERS_TOO_LARGE)
        elif self._incoming_cycle is not None:
            self._start_body_timer()
        elif self._is_in_headers and self._header_bytes and self._receive_timer is None:
            self._start_timer(self._settings.header_timeout_s, self._reject_slow_headers)

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
        if self._discards_input:
            raise _RequestRejectedError
        # It may be in the same segment as the previous message, which has reset the count.
        self._header_bytes = max(self._header_bytes, 1)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self.parser.get_method() == b"CONNECT":
            raise _RequestRejectedError
        if self.parser.should_upgrade():
            self._is_upgrade = True
            return
        self._stop_timer()
        limit = self._settings.header_bytes_max
        if self._header_bytes_bound > limit and count_head_bytes(self.url, self.headers) > limit:
            self._error = HEADERS_TOO_LARGE
            raise _RequestRejectedError
        if not is_host_unambiguous(self.parser.get_http_version(), self.url, self.headers):
            self._error = AMBIGUOUS_HOST
            raise _RequestRejectedError
        if len(self.pipeline) >= _PIPELINED_MAX:
            self._error = TOO_MANY_PIPELINED
            raise _RequestRejectedError
        # HTTP/1.0 has no interim responses (RFC 9110, 10.1.1).
        self.expect_100_continue &= self.parser.get_http_version() != "1.0"
        super().on_headers_complete()
        self._is_in_headers = False
        self.headers = []  # discards trailers: they must not become headers (RFC 9110, 6.5.1)

    def on_body(self, body: bytes) -> None:
        self._header_bytes -= len(body)
        self._body_bytes += len(body)
        self.cycle.body += body
        if len(self.cycle.body) > self._body_bytes_max():
            self._error = BODY_TOO_LARGE
            raise _RequestRejectedError

    def on_message_complete(self) -> None:
        if self._is_upgrade:
            return
        cycle = self.cycle
        cycle.more_body = False
        cycle.message_event.set()
        self._is_in_headers = True
        self._header_bytes = self._body_bytes = 0
        self._discards_input = not self.parser.should_keep_alive()
        if cycle is self._incoming_cycle:
            self._stop_timer()
            self._incoming_cycle = None
            self._admit(cycle)

    # Running requests

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start the next request if its body has arrived."""
        del app
        self._current_cycle = cycle
        if cycle.more_body:
            self._incoming_cycle = cycle
        else:
            self._admit(cycle)

    def _admit(self, cycle: RequestResponseCycle) -> None:
        lane = self.shared.admission.find_lane(cycle.scope["path"])
        if lane is None:
            self._start_request(cycle, self._application)
            return
        lane.enter(
            QueuedRequest(
                start=lambda slot: self._start_request(cycle, self._application, slot),
                shed=lambda: self._start_request(cycle, busy_application),
                is_disconnected=lambda: cycle.disconnected,
            )
        )

    def _start_request(
        self, cycle: RequestResponseCycle, app: Any, slot: Slot | None = None
    ) -> None:
        self._slot = slot
        if self.shared.is_draining and not self.pipeline:
            cycle.keep_alive = False
        task = self.loop.create_task(run_in_slot(cycle, app, slot))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def on_response_complete(self) -> None:
        self._output.flush()
        self._release_slot()
        if self._close_timer is not None:
            return
        super().on_response_complete()
        if self._discards_input or self.transport.is_closing():
            if self._final_error is not None and self._has_responded_to_all():
                self.transport.write(self._final_error)
                self._close_gracefully()
        elif self._incoming_cycle is not None:
            self._start_body_timer()
        elif self._has_responded_to_all():
            self.shared.idle_connections[self] = None

    def pause_writing(self) -> None:
        """Release the request's slot, because the client is not reading the response."""
        super().pause_writing()
        self._release_slot()
        wait_s = self._settings.body_timeout_s
        self._stall_timer = self.loop.call_later(wait_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    # Timeouts

    def _start_timer(self, seconds: float, on_timeout: Callable[[], None]) -> None:
        self._receive_timer = self.loop.call_later(seconds, on_timeout)

    def _start_body_timer(self) -> None:
        """Start the body timeout, and send `100 Continue` if the client expects it."""
        cycle = self._incoming_cycle
        if cycle is None or self._receive_timer is not None:
            return
        if get_content_length(cycle.scope["headers"]) > self._body_bytes_max():
            self._reject(BODY_TOO_LARGE)
            return
        if cycle.waiting_for_100_continue:
            cycle.waiting_for_100_continue = False
            self.transport.write(_CONTINUE)
            self._output.flush()
        self._start_timer(self._settings.body_timeout_s, self._reject_slow_body)

    def _stop_timer(self) -> None:
        if self._receive_timer is not None:
            self._receive_timer.cancel()
            self._receive_timer = None

    def _reject_slow_headers(self) -> None:
        if self._header_bytes:
            self._reject(HEADERS_TOO_SLOW)
        else:
            self.transport.close()  # no request has begun, so there is nothing to respond to

    def _reject_slow_body(self) -> None:
        self._reject(BODY_TOO_SLOW)

    # Closing

    def _reject(self, error: ErrorResponse) -> None:
        """Stop parsing, and send the error after the responses to all earlier requests."""
        if self.transport.is_closing():
            return
        self._stop_timer()
        self._discards_input = True
        if self._is_in_headers:
            response = encode_error(error, [(b"x-request-id", secrets.token_hex(16).encode())])
        else:
            response = encode_error(error, common_headers(cast("Scope", self.cycle.scope)))
            self._drop_request(self.cycle)
        if self._has_responded_to_all():
            self.transport.write(response)
            self._close_gracefully()
        else:
            self._final_error = response

    def _drop_request(self, cycle: RequestResponseCycle) -> None:
        """Drop a request whose body is incomplete."""
        cycle.disconnected = True
        self._incoming_cycle = None
        if cycle is self._current_cycle:
            self._current_cycle = None
        else:
            entries = (entry for entry in self.pipeline if entry[0] is not cycle)
            self.pipeline = type(self.pipeline)(entries)

    def _has_responded_to_all(self) -> bool:
        return not self.pipeline and (
            self._current_cycle is None or self._current_cycle.response_complete
        )

    def _close_gracefully(self) -> None:
        """Close our side and discard further input, because a reset could lose our response."""
        self._discards_input = True
        if self._close_timer is not None or (self._is_in_headers and not self._header_bytes):
            self._close_now()
        elif not self.transport.is_closing():
            self._output.flush()
            self._close_timer = self.loop.call_later(_LINGER_S, self.transport.abort)
            self.transport.write_eof()

    def _close_now(self) -> None:
        """Close, then abort the connection if the client does not read the response in time."""
        self._output.close_now()
        if self._close_timer is not None:
            self._close_timer.cancel()
        wait_s = self._settings.body_timeout_s
        self._close_timer = self.loop.call_later(wait_s, self.transport.abort)

    def _abandon_requests(self) -> None:
        for cycle in (self._current_cycle, *(entry[0] for entry in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True

    def _release_slot(self) -> None:
        if self._slot is not None:
            self._slot.release()

    def _close_idle_connection(self) -> bool:
        """Close the longest-idle connection. Returns False if no connection is idle."""
        for connection in self.shared.idle_connections:
            del self.shared.idle_connections[connection]
            connection.transport.close()
            return True
        return False

    def _body_bytes_max(self) -> int:
        is_callback = self.url.startswith(_CALLBACK_PREFIX)
        settings = self._settings
        return settings.callback_bytes_max if is_callback else settings.body_bytes_max


_HOST = re.compile(rb"(?:[A-Za-z0-9._~%!$&'()*+;=-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?", re.ASCII)
_SCHEME_PREFIXES = (b"http://", b"https://")


def is_host_unambiguous(
    version: str, target: bytes, headers: Iterable[tuple[bytes, bytes]]
) -> bool:
    """Return whether all servers would derive the same host from a request.

    HTTP/1.0 requests, such as health checks, may omit the `Host` header. If the target has an
    authority, it must match the header.
    """
    hosts = [value for name, value in headers if name == b"host"]
    if not hosts:
        return version == "1.0"
    [host, *duplicates] = hosts
    if duplicates or not _HOST.fullmatch(host):
        return False
    scheme = next((name for name in _SCHEME_PREFIXES if target[: len(name)].lower() == name), None)
    if scheme is None:
        return True
    authority = re.split(rb"[/?#]", target[len(scheme) :], maxsplit=1)[0]
    return authority.lower() == host.lower()
