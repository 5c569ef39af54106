"""The log of requests of gateways: collected by this process, and written apart from any payment.

What a process noted in its last second is lost if it is killed. Its memory is bounded, and so is
what it writes.
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
NOTED_MAX = 5_000  # between two writes
DROPPED = Counter(
    "payintent_gateway_calls_dropped_total",
    "Requests of gateways that are not in their log, because there were too many, or because "
    "they could not be stored",
)


class GatewayRequestKind(StrEnum):
    CREATE_SESSION = "create_session"
    INQUIRE = "inquire"
    CLOSE_SESSION = "close_session"
    REFUND = "refund"
    INQUIRE_REFUND = "inquire_refund"

    @property
    def channel(self) -> GatewayChannel:
        return GatewayChannel.REFUNDS if self in _OF_REFUNDS else GatewayChannel.SESSIONS


_OF_REFUNDS = frozenset({GatewayRequestKind.REFUND, GatewayRequestKind.INQUIRE_REFUND})


class CallOutcome(StrEnum):
    ANSWERED = "answered"
    REJECTED = "rejected"  # the gateway understood it, and does not do it
    THROTTLED = "throttled"  # the gateway limits our requests
    UNKNOWN = "unknown"  # no usable answer: it may have been carried out
    NOT_CONTACTED = "not_contacted"  # it surely never left


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayCall:
    """A request of a gateway by an account: what is asked, and about which session or refund."""

    account_id: int
    provider: str
    kind: GatewayRequestKind
    subject_id: UUID
    payment_id: UUID | None  # None: a refund of money that came for no payment


@dataclass(frozen=True, slots=True)
class _Noted:
    call: GatewayCall
    outcome: CallOutcome
    detail: str
    began_s: float
    ended_s: float


class GatewayCallLog:
    """The requests that this process has made since the last write."""

    def __init__(self, database: Database, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._monotonic = monotonic
        self._noted: list[_Noted] = []

    def now_s(self) -> float:
        return self._monotonic()

    def note(self, call: GatewayCall, answer: object, began_s: float) -> None:
        ended_s = self._monotonic()
        outcome, detail = describe_answer(answer)
        if call.payment_id is not None:
            _trace(call, call.payment_id, outcome, ended_s - began_s)
        if len(self._noted) >= NOTED_MAX:
            DROPPED.inc()
            return
        self._noted.append(_Noted(call, outcome, detail, began_s, ended_s))

    async def flush(self) -> None:
        """Write the collected requests in one statement; drop them if the database cannot store."""
        noted, self._noted = self._noted, []
        if not noted:
            return
        now_s = self._monotonic()
        try:
            await gateway_calls.add(self._database, [_record(call, now_s) for call in noted])
        except (StorageUnavailableError, LockTimeoutError):
            DROPPED.inc(len(noted))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await self.flush()


def _record(noted: _Noted, now_s: float) -> NewGatewayCall:
    call, of_refund = noted.call, noted.call.kind in _OF_REFUNDS
    return NewGatewayCall(
        account_id=call.account_id,
        request=call.kind,
        payment_id=call.payment_id,
        session_id=None if of_refund else call.subject_id,
        refund_id=call.subject_id if of_refund else None,
        outcome=noted.outcome,
        detail=storable_detail(noted.detail),
        duration_ms=round((noted.ended_s - noted.began_s) * 1000),
        age_s=now_s - noted.began_s,
    )


def _trace(call: GatewayCall, payment_id: UUID, outcome: CallOutcome, took_s: float) -> None:
    facts = {"payintent.provider": call.provider, "payintent.outcome": outcome.value}
    tracing.record(
        f"gateway {call.kind}",
        payment_id,
        took_s,
        facts,
        kind=SpanKind.CLIENT,
        failed=outcome is not CallOutcome.ANSWERED,
    )


def describe_answer(answer: object) -> tuple[CallOutcome, str]:
    """Say what came of a request, and the state that was reported or why there is none."""
    match answer:
        case NotContacted():
            return CallOutcome.NOT_CONTACTED, answer.detail
        case OutcomeUnknown():
            outcome = CallOutcome.THROTTLED if answer.throttled else CallOutcome.UNKNOWN
            return outcome, answer.detail
        case SessionRejected():
            return CallOutcome.REJECTED, answer.detail
        case RefundReport():
            declined = answer.state is GatewayRefundState.DECLINED
            said = ": ".join(filter(None, (answer.state.value, answer.detail)))
            return CallOutcome.REJECTED if declined else CallOutcome.ANSWERED, said
        case SessionReport():
            return CallOutcome.ANSWERED, answer.state.value
        case _:
            return CallOutcome.ANSWERED, ""
