"""Log gateway requests. They are buffered in memory and written once per second.

If a process is killed, the requests from its last second are lost.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, LiteralString
from uuid import UUID

from prometheus_client import Counter

from payintent.core.errors import LockTimeoutError, StorageUnavailableError
from payintent.core.ids import PAYMENT, format_id
from payintent.db.database import Database, Executor, Row
from payintent.gateway_accounts.health import GatewayChannel, sanitize_detail
from payintent.gateways.port import (
    GatewayRefundState,
    NotContacted,
    OutcomeUnknown,
    RefundReport,
    SessionRejected,
    SessionReport,
)
from payintent.runtime import tracing
from payintent.runtime.tracing import SpanKind

FLUSH_EVERY_S = 1.0
BUFFERED_CALLS_MAX = 5_000  # further calls are dropped
DROPPED_CALLS = Counter(
    "payintent_gateway_calls_dropped_total",
    "Gateway requests missing from the log because the buffer was full or the database failed",
)
#: Selects history entries for the latest $3 gateway requests of payment $1 (`payment_history`).
CALL_ENTRIES: LiteralString = """
    (
        SELECT at, 11, CASE WHEN session_id IS NULL THEN 'refund-call' ELSE 'gateway-call' END,
            coalesce(session_id, refund_id), json_build_object(
            'account_id', account_id, 'request', request, 'outcome', outcome,
            'gateway_detail', detail, 'duration_ms', duration_ms)
        FROM gateway_call
        WHERE payment_id = $1
        ORDER BY at DESC
        LIMIT $3
    )
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedCall:
    account_id: int
    request: str  # name of the port method
    payment_id: UUID | None
    session_id: UUID | None
    refund_id: UUID | None
    outcome: str
    detail: str
    duration_ms: int
    started_s: float  # on the monotonic clock of this process


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedGatewayCall:
    """A request that was rejected, throttled, unanswered or not sent."""

    at: datetime
    account_id: int
    provider: str
    request: str
    payment_id: str | None
    outcome: str
    detail: str  # status and gateway code, or the reason why there was no response
    duration_ms: int


async def add_calls(database: Executor, calls: Sequence[CompletedCall], now_s: float) -> None:
    await database.fetch(
        """
        INSERT INTO gateway_call
            (at, account_id, request, payment_id, session_id, refund_id, outcome, detail,
                duration_ms)
        SELECT clock() - age_s * interval '1 second', account_id, request, payment_id,
            session_id, refund_id, outcome, detail, duration_ms
        FROM unnest($1::float8[], $2::bigint[], $3::text[], $4::uuid[], $5::uuid[], $6::uuid[],
            $7::text[], $8::text[], $9::int[])
            AS c (age_s, account_id, request, payment_id, session_id, refund_id, outcome, detail,
                duration_ms)
        """,
        [now_s - call.started_s for call in calls],
        [call.account_id for call in calls],
        [call.request for call in calls],
        [call.payment_id for call in calls],
        [call.session_id for call in calls],
        [call.refund_id for call in calls],
        [call.outcome for call in calls],
        [call.detail for call in calls],
        [call.duration_ms for call in calls],
    )


async def list_failed_calls(
    database: Executor, account_id: int | None, limit: int
) -> list[FailedGatewayCall]:
    """List the last `limit` failed calls of one account, or of each account, newest first."""
    rows = await database.fetch(
        """
        SELECT c.at, a.id AS account_id, a.provider, c.request, c.payment_id, c.outcome, c.detail,
            c.duration_ms
        FROM provider_account a
        CROSS JOIN LATERAL (
            SELECT at, id, request, payment_id, outcome, detail, duration_ms
            FROM gateway_call
            WHERE account_id = a.id AND outcome <> 'answered'
            ORDER BY at DESC
            LIMIT $2
        ) c
        WHERE a.id = $1 OR $1::bigint IS NULL
        ORDER BY c.at DESC, c.id
        """,
        account_id,
        limit,
    )
    return [_to_failed_call(row) for row in rows]


def _to_failed_call(row: Row) -> FailedGatewayCall:
    payment_id = row["payment_id"] and format_id(PAYMENT, row["payment_id"])
    fields: dict[str, Any] = dict(row) | {"payment_id": payment_id}
    return FailedGatewayCall(**fields)


async def delete_old_calls(database: Executor, days: int, limit: int) -> int:
    """Delete up to `limit` calls older than `days` days; return how many were deleted."""
    rows = await database.fetch(
        """
        DELETE FROM gateway_call c
        USING (
            SELECT at, id
            FROM gateway_call
            WHERE at < clock() - make_interval(days => $1)
            ORDER BY at
            LIMIT $2
        ) AS old
        WHERE c.at = old.at AND c.id = old.id
        RETURNING 1 AS deleted
        """,
        days,
        limit,
    )
    return len(rows)


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
    REJECTED = "rejected"  # the gateway rejected the request
    THROTTLED = "throttled"  # the gateway rate-limited the request
    UNKNOWN = "unknown"  # no usable response; the request may have succeeded
    NOT_CONTACTED = "not_contacted"  # the request was definitely not sent


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayCall:
    """A gateway request about a session or a refund."""

    account_id: int
    provider: str
    kind: GatewayRequestKind
    subject_id: UUID
    payment_id: UUID | None  # None for a refund of money that does not belong to a payment


class GatewayCallLog:
    """Buffers this process's requests until the next write."""

    def __init__(self, database: Database, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._monotonic = monotonic
        self._buffered_calls: list[CompletedCall] = []

    def now_s(self) -> float:
        return self._monotonic()

    def add(self, call: GatewayCall, result: object, started_s: float) -> None:
        ended_s = self._monotonic()
        outcome, detail = describe_result(result)
        if call.payment_id is not None:
            _record_span(call, call.payment_id, outcome, ended_s - started_s)
        if len(self._buffered_calls) >= BUFFERED_CALLS_MAX:
            DROPPED_CALLS.inc()
            return
        duration_ms = round((ended_s - started_s) * 1000)
        self._buffered_calls.append(
            _make_completed_call(call, outcome, detail, duration_ms, started_s)
        )

    async def flush(self) -> None:
        """Write the buffered requests in one statement; drop them if the database fails."""
        calls, self._buffered_calls = self._buffered_calls, []
        if not calls:
            return
        try:
            await add_calls(self._database, calls, self._monotonic())
        except (StorageUnavailableError, LockTimeoutError):
            DROPPED_CALLS.inc(len(calls))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_EVERY_S)
            await self.flush()


def _make_completed_call(
    call: GatewayCall, outcome: CallOutcome, detail: str, duration_ms: int, started_s: float
) -> CompletedCall:
    is_refund = call.kind in _REFUND_KINDS
    return CompletedCall(
        account_id=call.account_id,
        request=call.kind,
        payment_id=call.payment_id,
        session_id=None if is_refund else call.subject_id,
        refund_id=call.subject_id if is_refund else None,
        outcome=outcome,
        detail=sanitize_detail(detail),
        duration_ms=duration_ms,
        started_s=started_s,
    )


def _record_span(
    call: GatewayCall, payment_id: UUID, outcome: CallOutcome, duration_s: float
) -> None:
    attributes = {"payintent.provider": call.provider, "payintent.outcome": outcome.value}
    tracing.record(
        f"gateway {call.kind}",
        payment_id,
        duration_s,
        attributes,
        kind=SpanKind.CLIENT,
        failed=outcome is not CallOutcome.ANSWERED,
    )


def describe_result(result: object) -> tuple[CallOutcome, str]:
    """Return a call's outcome, and the reported state or the reason for the failure."""
    match result:
        case OutcomeUnknown():
            is_unsent = isinstance(result, NotContacted)
            outcome = CallOutcome.NOT_CONTACTED if is_unsent else CallOutcome.UNKNOWN
            return CallOutcome.THROTTLED if result.is_throttled else outcome, result.detail
        case SessionRejected():
            return CallOutcome.REJECTED, result.detail
        case RefundReport():
            is_declined = result.state is GatewayRefundState.DECLINED
            detail = ": ".join(filter(None, (result.state.value, result.detail)))
            return CallOutcome.REJECTED if is_declined else CallOutcome.ANSWERED, detail
        case SessionReport():
            return CallOutcome.ANSWERED, result.state.value
        case _:
            return CallOutcome.ANSWERED, ""
