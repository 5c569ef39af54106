"""Recent gateway requests (table `gateway_call`), without bodies and secrets."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from payintent.storage.database import Executor

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
    payment_id: UUID | None
    outcome: str
    detail: str
    duration_ms: int


async def add(database: Executor, calls: Sequence[NewGatewayCall]) -> None:
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


async def list_errors(
    database: Executor, account_id: int | None, limit: int
) -> list[FailedGatewayCall]:
    """List the last `limit` errors of each account, or of `account_id` alone, newest first."""
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
    return [FailedGatewayCall(**row) for row in rows]


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
