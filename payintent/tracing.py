"""Spans of payments: the work on a payment with its time, process and outcome.

The trace id is the payment id, which also has 128 bits. Therefore requests, callbacks, workers and
deliveries on any host belong to the same trace, without a stored or transmitted context. The root
is the span of the request that created the payment.

Without a sink nothing is recorded, and every function returns at once.
"""

import secrets
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Protocol
from uuid import UUID

from payintent import log

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
