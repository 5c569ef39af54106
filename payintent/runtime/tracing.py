"""Tracing: a span for each piece of work on a payment, with its time, process and outcome.

The trace id is the payment id, because both have 128 bits. All spans of a payment,
from any host, therefore belong to the same trace, although no context is stored or propagated.
The root span is the request that created the payment. If tracing is disabled, all functions return
immediately.
"""

import logging
import secrets
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from payintent.runtime import log
from payintent.runtime.log import get_logger
from payintent.runtime.settings import Settings
from payintent.runtime.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext


_log = get_logger("tracing")
_TIMEOUT_S = 2.0  # per batch, including retries; a process waits for its last batch
_EXPORT_EVERY_MS = 1_000
_QUEUE_MAX = 4_096  # further spans are dropped
_MESSAGE_CHARS_MAX = 300
_SPAN_BITS = 64
_SAMPLE_BITS = 32
_NS_PER_S = 1_000_000_000
_SERVER_ERROR = 500

Attributes = Mapping[str, str | int]


class TracingUnavailableError(Exception):
    """Tracing is configured, but the exporter is not installed."""


class SpanKind(Enum):
    SERVER = "server"  # an incoming request
    CLIENT = "client"  # an outgoing request
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A unit of work on a payment. Times are Unix times in nanoseconds."""

    name: str
    kind: SpanKind
    trace_id: UUID
    span_id: int
    parent_id: int | None
    started_ns: int
    finished_ns: int
    failed: bool
    attributes: Attributes


class SpanSink(Protocol):
    def add(self, span: Span) -> None:
        """Queue a finished span, without blocking."""
        ...

    def close(self) -> None:
        """Send the queued spans; may block for seconds."""
        ...


@dataclass(slots=True)
class _Request:
    """This task's request. Its payment is set by `follow_payment`."""

    span_id: int
    payment_id: UUID | None = None


@dataclass(slots=True)
class _Recording:
    sink: SpanSink
    sampled_below: int  # compared with the last 32 bits of the payment id, which are random


_recording: _Recording | None = None
_request: ContextVar[_Request | None] = ContextVar("traced_request", default=None)


def start(sink: SpanSink, share: float = 1.0) -> None:
    """Start recording. `share` selects the same payments in every process."""
    global _recording  # noqa: PLW0603 - per process, like the log
    _recording = _Recording(sink, round(share * (1 << _SAMPLE_BITS)))


def stop() -> None:
    """Stop recording, and send the queued spans."""
    global _recording
    recording, _recording = _recording, None
    if recording is not None:
        recording.sink.close()


def is_enabled() -> bool:
    return _recording is not None


def begin_request() -> None:
    """Start the span of a request, which becomes the parent of later spans of this task."""
    if _recording is not None:
        _request.set(_Request(_new_span_id()))


def follow_payment(payment_id: UUID, *, is_new: bool = False) -> None:
    """Assign this task's log lines, and its request if there is one, to a payment's trace."""
    if _recording is None:
        return
    log.trace_id.set(payment_id.hex)
    if (request := _request.get()) is not None:
        request.payment_id = payment_id
        if is_new:
            request.span_id = _get_root_span_id(payment_id)


def end_request(name: str, status: int, duration_s: float, attributes: Attributes) -> None:
    """Record the request of this task, if it concerned a payment."""
    request = _request.get()
    if request is not None and request.payment_id is not None:
        record(
            name,
            request.payment_id,
            duration_s,
            {"http.response.status_code": status, **attributes},
            kind=SpanKind.SERVER,
            failed=status >= _SERVER_ERROR,
            span_id=request.span_id,
        )


def record(
    name: str,
    payment_id: UUID,
    duration_s: float,
    attributes: Attributes,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    failed: bool = False,
    span_id: int | None = None,
) -> None:
    """Record work that has just finished, as a child of this task's request or of the root."""
    recording = _recording
    if recording is None or payment_id.int % (1 << _SAMPLE_BITS) >= recording.sampled_below:
        return
    span_id = span_id or _new_span_id()
    finished_ns = time.time_ns()
    recording.sink.add(
        Span(
            name=name,
            kind=kind,
            trace_id=payment_id,
            span_id=span_id,
            parent_id=_find_parent_span_id(span_id, payment_id),
            started_ns=finished_ns - int(duration_s * _NS_PER_S),
            finished_ns=finished_ns,
            failed=failed,
            attributes=attributes,
        )
    )


def _new_span_id() -> int:
    return secrets.randbits(_SPAN_BITS) or 1


def _find_parent_span_id(span_id: int, payment_id: UUID) -> int | None:
    root, request = _get_root_span_id(payment_id), _request.get()
    if span_id == root:
        return None
    if request is None or request.payment_id != payment_id or request.span_id == span_id:
        return root
    return request.span_id


def _get_root_span_id(payment_id: UUID) -> int:
    """Return the id of the root span: the lower half of the payment id, which is never 0."""
    return payment_id.int % (1 << _SPAN_BITS)


def start_tracing(settings: Settings, process: str) -> None:
    """Record the spans of this process if a collector is configured.

    Raises `TracingUnavailableError` if the extra is not installed.
    """
    if not settings.otlp_endpoint:
        return
    try:
        sink = _Exporter(settings.otlp_endpoint, process)
    except ImportError as error:
        raise TracingUnavailableError(
            f"PAYINTENT_OTLP_ENDPOINT needs the payintent[otel] extra: {error}"
        ) from error
    start(sink, settings.trace_share)


class _Exporter:
    """A sink that passes spans to OpenTelemetry's batch processor."""

    def __init__(self, endpoint: str, process: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        _redirect_warnings()
        self._resource = Resource.create({"service.name": process, "service.version": VERSION})
        exporter = OTLPSpanExporter(f"{endpoint}/v1/traces", timeout=_TIMEOUT_S)
        self._processor = BatchSpanProcessor(
            exporter, max_queue_size=_QUEUE_MAX, schedule_delay_millis=_EXPORT_EVERY_MS
        )

    def add(self, span: Span) -> None:
        self._processor.on_end(self._to_readable(span))

    def close(self) -> None:
        self._processor.shutdown()

    def _to_readable(self, span: Span) -> "ReadableSpan":
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanKind, Status, StatusCode

        return ReadableSpan(
            span.name,
            _make_span_context(span, span.span_id),
            None if span.parent_id is None else _make_span_context(span, span.parent_id),
            self._resource,
            dict(span.attributes),
            kind=SpanKind[span.kind.name],
            status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
            start_time=span.started_ns,
            end_time=span.finished_ns,
        )


def _make_span_context(span: Span, span_id: int) -> "SpanContext":
    from opentelemetry.trace import SpanContext, TraceFlags

    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(span.trace_id.int, span_id, is_remote=False, trace_flags=flags)


class _WarningHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _log.warning("traces_lost", why=record.getMessage()[:_MESSAGE_CHARS_MAX])


def _redirect_warnings() -> None:
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    logger.handlers = [_WarningHandler(logging.WARNING)]
