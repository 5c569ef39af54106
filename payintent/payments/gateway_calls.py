"""The log of gateway requests, collected in memory and written once per second.

A process that is killed loses the requests of its last second. Memory and writes are bounded.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from prometheus_client import Counter

from payintent import tracing
from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.domain.gateway import (
    GatewayRefundState,
    NotContacted,
    OutcomeUnknown,
    RefundReport,
    SessionRejected,
    SessionReport,
)
from payintent.payments.gateway_health import GatewayChannel, storable_detail
from payintent.storage import gateway_calls
from payintent.storage.database import Database
from payintent.storage.gateway_calls import NewGatewayCall
from payintent.tracing import SpanKind

EVERY_S = 1.0
PENDING_MAX = 5_000  # between two writes
DROPPED = Counter(
    "payintent_gateway_calls_dropped_total",
    "Gateway requests missing from the log, because there were too many or the database failed",
)


class GatewayRequestKind(StrEnum):
    CREATE_SESSION = "create_session"
    INQUIRE = "inquire"
    CLOSE_SESSION = "close_session"
    REFUND = "refund"
    INQUIRE_REFUND = "inquire_refund"

    @property
    def channel(self) -> GatewayChannel:
        return GatewayChannel.REFUNDS if self in _REFUND_KINDS else GatewayChannel.SESSIONS


_REFUND_KINDS = frozenset({GatewayRequestKind.REFUND, GatewayRequestKind.INQUIRE_REFUND})


class CallOutcome(StrEnum):
    ANSWERED = "answered"
    REJECTED = "rejected"  # the gateway refused it
    THROTTLED = "throttled"  # the gateway limits our requests
    UNKNOWN = "unknown"  # no usable answer: the request may have succeeded
    NOT_CONTACTED = "not_contacted"  # the request was certainly not sent


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayCall:
    """A gateway request about a session or a refund."""

    account_id: int
    provider: str
    kind: GatewayRequestKind
    subject_id: UUID
    payment_id: UUID | None  # None: a refund of money without a payment


@dataclass(frozen=True, slots=True)
class _CompletedCall:
    call: GatewayCall
    outcome: CallOutcome
    detail: str
    started_s: float
    ended_s: float


class GatewayCallLog:
    """Collects the requests of this process until the next write."""

    def __init__(self, database: Database, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._monotonic = monotonic
        self._pending: list[_CompletedCall] = []

    def now_s(self) -> float:
        return self._monotonic()

    def add(self, call: GatewayCall, answer: object, started_s: float) -> None:
        ended_s = self._monotonic()
        outcome, detail = describe_answer(answer)
        if call.payment_id is not None:
            _trace(call, call.payment_id, outcome, ended_s - started_s)
        if len(self._pending) >= PENDING_MAX:
            DROPPED.inc()
            return
        self._pending.append(_CompletedCall(call, outcome, detail, started_s, ended_s))

    async def flush(self) -> None:
        """Write the collected requests in one statement; drop them if the database fails."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        now_s = self._monotonic()
        try:
            await gateway_calls.add(self._database, [_record(call, now_s) for call in pending])
        except (StorageUnavailableError, LockTimeoutError):
            DROPPED.inc(len(pending))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await self.flush()


def _record(completed: _CompletedCall, now_s: float) -> NewGatewayCall:
    call, is_refund = completed.call, completed.call.kind in _REFUND_KINDS
    return NewGatewayCall(
        account_id=call.account_id,
        request=call.kind,
        payment_id=call.payment_id,
        session_id=None if is_refund else call.subject_id,
        refund_id=call.subject_id if is_refund else None,
        outcome=completed.outcome,
        detail=storable_detail(completed.detail),
        duration_ms=round((completed.ended_s - completed.started_s) * 1000),
        age_s=now_s - completed.started_s,
    )


def _trace(call: GatewayCall, payment_id: UUID, outcome: CallOutcome, took_s: float) -> None:
    attributes = {"payintent.provider": call.provider, "payintent.outcome": outcome.value}
    tracing.record(
        f"gateway {call.kind}",
        payment_id,
        took_s,
        attributes,
        kind=SpanKind.CLIENT,
        failed=outcome is not CallOutcome.ANSWERED,
    )


def describe_answer(answer: object) -> tuple[CallOutcome, str]:
    """Return the outcome of an answer, and the reported state or the reason for failure."""
    match answer:
        case NotContacted():
            return CallOutcome.NOT_CONTACTED, answer.detail
        case OutcomeUnknown():
            outcome = CallOutcome.THROTTLED if answer.throttled else CallOutcome.UNKNOWN
            return outcome, answer.detail
        case SessionRejected():
            return CallOutcome.REJECTED, answer.detail
        case RefundReport():
            is_declined = answer.state is GatewayRefundState.DECLINED
            detail = ": ".join(filter(None, (answer.state.value, answer.detail)))
            return CallOutcome.REJECTED if is_declined else CallOutcome.ANSWERED, detail
        case SessionReport():
            return CallOutcome.ANSWERED, answer.state.value
        case _:
            return CallOutcome.ANSWERED, ""
