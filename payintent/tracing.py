"""Spans of payments: what was done for one, when, by which process, and how it ended.

A payment's trace has the payment's id for its own, which has 128 bits as well. So requests,
callbacks, workers and deliveries join one trace on whichever host they run, and no context is
stored or sent along. The span of the request that created the payment is its root.

Without a sink nothing is recorded, and every call here returns at once.
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
    """Traces are wanted, and what sends them is not installed."""


class SpanKind(Enum):
    """Who asked whom: a client asked us, we asked somebody, or nobody else was there."""

    SERVER = "server"
    CLIENT = "client"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Something that was done for a payment; times are those of Unix, in nanoseconds."""

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
    """Takes spans, without waiting for anybody."""

    def add(self, span: Span) -> None:
        """Take a span that has ended."""
        ...

    def close(self) -> None:
        """Send what is left; may block for seconds."""
        ...


@dataclass(slots=True)
class _Request:
    """The request that this task answers, and its payment as soon as that is known."""

    span_id: int
    payment_id: UUID | None = None


@dataclass(slots=True)
class _Recorder:
    sink: SpanSink
    sampled_below: int  # of the last 32 bits of a payment's id, which are random


_recorder: _Recorder | None = None
_request: ContextVar[_Request | None] = ContextVar("traced_request", default=None)


def start(sink: SpanSink, share: float = 1.0) -> None:
    """Record the spans of a share of all payments, in every process of the same ones."""
    global _recorder  # noqa: PLW0603 - of the process, as its log is
    _recorder = _Recorder(sink, round(share * (1 << _SAMPLE_BITS)))


def stop() -> None:
    """Record nothing any more, and send what is left."""
    global _recorder
    recorder, _recorder = _recorder, None
    if recorder is not None:
        recorder.sink.close()


def is_on() -> bool:
    """Tell whether spans are recorded."""
    return _recorder is not None


def begin_request() -> None:
    """Let what this task does be part of a request, whose payment is not known yet."""
    if _recorder is not None:
        _request.set(_Request(secrets.randbits(_SPAN_BITS) or 1))


def follow_payment(payment_id: UUID, *, creates: bool = False) -> None:
    """Let this task's log lines, and its request if it has one, belong to a payment's trace."""
    if _recorder is None:
        return
    log.trace_id.set(payment_id.hex)
    if (request := _request.get()) is not None:
        request.payment_id = payment_id
        if creates:
            request.span_id = _root_of(payment_id)


def end_request(name: str, status: int, took_s: float, attributes: Attributes) -> None:
    """Record the request of this task, where it was about a payment."""
    request = _request.get()
    if request is not None and request.payment_id is not None:
        _add(
            request.span_id,
            request.payment_id,
            name=name,
            kind=SpanKind.SERVER,
            took_s=took_s,
            failed=status >= _SERVER_ERROR,
            attributes={"http.response.status_code": status, **attributes},
        )


def record(
    name: str,
    payment_id: UUID,
    took_s: float,
    attributes: Attributes,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    failed: bool = False,
) -> None:
    """Record what has just ended, and took so long, as part of the request that it was done for."""
    if _recorder is not None:
        _add(
            secrets.randbits(_SPAN_BITS) or 1,
            payment_id,
            name=name,
            kind=kind,
            took_s=took_s,
            failed=failed,
            attributes=attributes,
        )


def _add(
    span_id: int,
    payment_id: UUID,
    *,
    name: str,
    kind: SpanKind,
    took_s: float,
    failed: bool,
    attributes: Attributes,
) -> None:
    recorder = _recorder
    if recorder is None or payment_id.int % (1 << _SAMPLE_BITS) >= recorder.sampled_below:
        return
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


def _parent_of(span_id: int, payment_id: UUID) -> int | None:
    """Give the request that a span belongs to, or the root; the root has none."""
    root, request = _root_of(payment_id), _request.get()
    if span_id == root:
        return None
    if request is None or request.payment_id != payment_id or request.span_id == span_id:
        return root
    return request.span_id


def _root_of(payment_id: UUID) -> int:
    """Derive the id of the span that created a payment: half of its id, which is never 0."""
    return payment_id.int % (1 << _SPAN_BITS)
