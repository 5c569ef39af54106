"""Spans of payments: the work on a payment with its time, process and outcome.

The trace id is the payment id, which also has 128 bits. Therefore requests, callbacks, workers and
deliveries on any host belong to the same trace, without a stored or transmitted context. The root
is the span of the request that created the payment.

Without a sink nothing is recorded, and every function returns at once.
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

from payintent.runtime import API_VERSION, log
from payintent.runtime.log import get_logger
from payintent.runtime.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext


_log = get_logger("tracing")
_TIMEOUT_S = 2.0  # per batch with its retries; a process waits for the last batch when it ends
_EVERY_MS = 1_000
_QUEUE_MAX = 4_096  # further spans are dropped
_LOGGED_CHARS = 300
_SPAN_BITS = 64
_SAMPLE_BITS = 32
_NS = 1_000_000_000
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
    """A unit of work on a payment; times are Unix times in nanoseconds."""

    name: str
    kind: SpanKind
    trace_id: UUID
    span_id: int
    parent_id: int | None
    began_ns: int
    ended_ns: int
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
    """The request of this task; its payment is not known at first."""

    span_id: int
    payment_id: UUID | None = None


@dataclass(slots=True)
class _Recorder:
    sink: SpanSink
    sampled_below: int  # compared with the last 32 bits of a payment id, which are random


_recorder: _Recorder | None = None
_request: ContextVar[_Request | None] = ContextVar("traced_request", default=None)


def start(sink: SpanSink, share: float = 1.0) -> None:
    """Record the spans of a share of all payments, which is the same in every process."""
    global _recorder  # noqa: PLW0603 - per process, like the log
    _recorder = _Recorder(sink, round(share * (1 << _SAMPLE_BITS)))


def stop() -> None:
    """Stop recording, and send the queued spans."""
    global _recorder
    recorder, _recorder = _recorder, None
    if recorder is not None:
        recorder.sink.close()


def is_on() -> bool:
    return _recorder is not None


def begin_request() -> None:
    """Start the span of a request; the spans of this task will be its children."""
    if _recorder is not None:
        _request.set(_Request(_new_span_id()))


def follow_payment(payment_id: UUID, *, creates: bool = False) -> None:
    """Assign this task's log lines and its request, if any, to the trace of a payment."""
    if _recorder is None:
        return
    log.trace_id.set(payment_id.hex)
    if (request := _request.get()) is not None:
        request.payment_id = payment_id
        if creates:
            request.span_id = _root_of(payment_id)


def end_request(name: str, status: int, took_s: float, attributes: Attributes) -> None:
    """Record the request of this task, if it concerned a payment."""
    request = _request.get()
    if request is not None and request.payment_id is not None:
        record(
            name,
            request.payment_id,
            took_s,
            {"http.response.status_code": status, **attributes},
            kind=SpanKind.SERVER,
            failed=status >= _SERVER_ERROR,
            span_id=request.span_id,
        )


def record(
    name: str,
    payment_id: UUID,
    took_s: float,
    attributes: Attributes,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    failed: bool = False,
    span_id: int | None = None,
) -> None:
    """Record work that has just ended, as a child of this task's request or of the root."""
    recorder = _recorder
    if recorder is None or payment_id.int % (1 << _SAMPLE_BITS) >= recorder.sampled_below:
        return
    span_id = span_id or _new_span_id()
    ended_ns = time.time_ns()
    recorder.sink.add(
        Span(
            name=name,
            kind=kind,
            trace_id=payment_id,
            span_id=span_id,
            parent_id=_parent_of(span_id, payment_id),
            began_ns=ended_ns - int(took_s * _NS),
            ended_ns=ended_ns,
            failed=failed,
            attributes=attributes,
        )
    )


def _new_span_id() -> int:
    return secrets.randbits(_SPAN_BITS) or 1


def _parent_of(span_id: int, payment_id: UUID) -> int | None:
    root, request = _root_of(payment_id), _request.get()
    if span_id == root:
        return None
    if request is None or request.payment_id != payment_id or request.span_id == span_id:
        return root
    return request.span_id


def _root_of(payment_id: UUID) -> int:
    """Return the id of the root span: half of the payment id, which is never 0."""
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
            f"PAYINTENT_OTLP_ENDPOINT needs the extra payintent[otel]: {error}"
        ) from error
    start(sink, settings.trace_share)


class _Exporter:
    """A sink that passes spans to OpenTelemetry's batch processor."""

    def __init__(self, endpoint: str, process: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        _redirect_log()
        self._resource = Resource.create({"service.name": process, "service.version": API_VERSION})
        exporter = OTLPSpanExporter(f"{endpoint}/v1/traces", timeout=_TIMEOUT_S)
        self._processor = BatchSpanProcessor(
            exporter, max_queue_size=_QUEUE_MAX, schedule_delay_millis=_EVERY_MS
        )

    def add(self, span: Span) -> None:
        self._processor.on_end(self._readable(span))

    def close(self) -> None:
        self._processor.shutdown()

    def _readable(self, span: Span) -> "ReadableSpan":
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanKind, Status, StatusCode

        return ReadableSpan(
            span.name,
            _context(span, span.span_id),
            None if span.parent_id is None else _context(span, span.parent_id),
            self._resource,
            dict(span.attributes),
            kind=SpanKind[span.kind.name],
            status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
            start_time=span.began_ns,
            end_time=span.ended_ns,
        )


def _context(span: Span, span_id: int) -> "SpanContext":
    from opentelemetry.trace import SpanContext, TraceFlags

    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(span.trace_id.int, span_id, is_remote=False, trace_flags=flags)


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _log.warning("traces_lost", why=record.getMessage()[:_LOGGED_CHARS])


def _redirect_log() -> None:
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    logger.handlers = [_Handler(logging.WARNING)]
