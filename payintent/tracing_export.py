"""Export spans to an OpenTelemetry collector by OTLP over HTTP, with the extra `payintent[otel]`.

Only this module imports OpenTelemetry. A thread sends batches, so that no request waits. Spans that
cannot be sent are dropped and logged.
"""

import logging
from typing import TYPE_CHECKING

from payintent import tracing
from payintent.config import Settings
from payintent.log import get_logger
from payintent.tracing import Span, TracingUnavailableError
from payintent.version import API_VERSION

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

_log = get_logger("tracing")
_TIMEOUT_S = 2.0  # per batch with its retries; a process waits for the last batch when it ends
_EVERY_MS = 1_000
_QUEUE_MAX = 4_096  # further spans are dropped
_LOGGED_CHARS = 300


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
    tracing.start(sink, settings.trace_share)


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
