"""The log of gateway requests, collected in memory and written once per second.

A process that is killed loses the requests of its last second. Memory and writes are bounded.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, LiteralString
from uuid import UUID

from prometheus_client import Counter

from payintent.core.access import RateLimit
from payintent.core.errors import ErrorCode, LockTimeoutError, RefusedError, StorageUnavailableError
from payintent.core.ids import PAYMENT, format_id
from payintent.db.database import Database, Executor, Row
from payintent.gateway_accounts.health import GatewayChannel, storable_detail
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
from payintent.runtime.waiting import Waiters

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


#: The latest $3 entries of a payment's ($1) history, see `payment_history`.
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
class NewGatewayCall:
    """A request that started `age_s` seconds ago, and its outcome."""

    account_id: int
    request: str  # the name of the port's method
    payment_id: UUID | None
    session_id: UUID | None
    refund_id: UUID | None
    outcome: str
    detail: str
    duration_ms: int
    age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedGatewayCall:
    """A request that was rejected, throttled, unanswered or not sent."""

    at: datetime
    account_id: int
    provider: str
    request: str
    payment_id: str | None
    outcome: str
    detail: str  # status and gateway code, or the reason for the missing answer
    duration_ms: int


async def add_calls(database: Executor, calls: Sequence[NewGatewayCall]) -> None:
    """Store calls with a single statement."""
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
        [call.age_s for call in calls],
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
    """List the last `limit` failed calls of each account, or of one account, newest first."""
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


async def delete_old(database: Executor, days: int, limit: int) -> int:
    """Delete up to `limit` calls that are more than `days` days old; returns their number."""
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
            await add_calls(self._database, [_record(call, now_s) for call in pending])
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


async def take(database: Executor, account_id: int, limit: RateLimit, needed: float = 1.0) -> bool:
    """Take a call from the bucket of an account; False if fewer than `needed` are left.

    The bucket is stored as the time at which it will be full, as in `merchants/limits_store.py`.
    """
    row = await database.row(
        """
        INSERT INTO buyer_call_state AS s (account_id, full_at)
        VALUES ($1, extract(epoch FROM clock()) + 1::numeric / $2)
        ON CONFLICT (account_id) DO UPDATE
        -- `excluded.full_at` is one call after now. The bound keeps the bucket at empty at worst if
        -- the clock was set back or the limit was changed.
        SET full_at = least(
            greatest(s.full_at + 1::numeric / $2, excluded.full_at),
            excluded.full_at + $3::numeric / $2
        )
        WHERE s.full_at + ($4::float8::numeric + 1) / $2
            <= excluded.full_at + ($3::numeric + 0.0005) / $2
        RETURNING account_id
        """,
        account_id,
        limit.per_s,
        limit.burst,
        needed,
    )
    return row is not None


RETRY_AFTER_S = 1
#: Buyers that may wait for a gateway in this process, per account and per merchant. They hold no
#: request slot, so without these bounds a slow gateway could pile up any number of them.
WAITING_PER_ACCOUNT_MAX = 128
WAITING_PER_MERCHANT_MAX = 64
_USERS_MAX = 20_000  # in memory

REFUSED = Counter(
    "payintent_buyer_calls_refused_total",
    "Gateway calls for buyers that were refused because the account had no capacity left",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuyerCall:
    account_id: int
    provider: str
    merchant_id: int
    payment_id: UUID


class RecentUse:
    """The recent use of each user, which decays by a factor of e in `decay_s`."""

    def __init__(self, decay_s: float, monotonic: Callable[[], float]) -> None:
        self._decay_s = decay_s
        self._monotonic = monotonic
        self._use: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # amount, time

    def of(self, user: Hashable) -> float:
        amount, at = self._use.get(user, (0.0, 0.0))
        return amount * math.exp((at - self._monotonic()) / self._decay_s) if amount else 0.0

    def add(self, user: Hashable, count: int) -> None:
        """Change a user's use; the least recently active users are dropped."""
        amount = max(0.0, self.of(user) + count)
        self._use[user] = amount, self._monotonic()
        self._use.move_to_end(user)
        if len(self._use) > _USERS_MAX:
            self._use.popitem(last=False)


class BuyerCalls:
    """Spends gateway calls from the accounts' buckets, and bounds the number of waiting buyers.

    A `limit` of None means unlimited. Accounts at `local` providers need no network calls.
    """

    def __init__(
        self,
        database: Database,
        limit: RateLimit | None,
        local: Collection[str],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._limit = limit
        self._local = local
        self._waiters = Waiters()
        decay_s = limit.burst / limit.per_s if limit else 1.0
        self._recent_use = RecentUse(decay_s, monotonic)

    async def allow(self, call: BuyerCall) -> bool:
        """Spend a call; False if the bucket is too empty for this merchant and checkout."""
        if self._limit is None or call.provider in self._local:
            return True
        users = (call.account_id, call.merchant_id), (call.account_id, call.payment_id)
        # Users that exceed their share all get the same: each is admitted until its use reaches
        # the level of the bucket. A single merchant's crowd leaves a third of the burst.
        needed = max(1.0, sum(self._recent_use.of(user) for user in users) / len(users))
        for user in users:
            self._recent_use.add(user, 1)
        if await take(self._database, call.account_id, self._limit, needed):
            return True
        for user in users:
            self._recent_use.add(user, -1)
        REFUSED.inc()
        return False

    @asynccontextmanager
    async def enter(self, call: BuyerCall) -> "AsyncGenerator[None]":
        """Spend a call, and count the caller as waiting inside the block.

        Raises `RATE_LIMITED` if the bucket is too empty, or too many buyers of the account or of
        the merchant are waiting.
        """
        if call.provider in self._local:
            yield
            return
        account, merchant = ("account", call.account_id), ("merchant", call.merchant_id)
        is_full = (
            self._waiters[account] >= WAITING_PER_ACCOUNT_MAX
            or self._waiters[merchant] >= WAITING_PER_MERCHANT_MAX
        )
        if is_full:
            REFUSED.inc()
            raise _rate_limited()
        with self._waiters.count(account, merchant):
            if not await self.allow(call):
                raise _rate_limited()
            yield


def _rate_limited() -> RefusedError:
    return RefusedError(
        ErrorCode.RATE_LIMITED,
        "too many buyers are using this payment method",
        retry_after_s=RETRY_AFTER_S,
    )
