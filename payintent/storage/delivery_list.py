"""Deliveries as an operator lists them.

What an index gives in the order of the list is read from there; of anything else the newest so
many are looked through.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from payintent.storage.database import Executor
from payintent.storage.outbox import DeliveryRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    """Which deliveries to list, newest first; None means any, `before` ends the last page."""

    merchant_id: int | None = None
    state: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    tried: bool = False  # those alone that at least one attempt was made for
    before: UUID | None = None


# One row at a time by its key, in the order of the list: what is not shown is not read.
_SHOWN: LiteralString = """
    SELECT w.event_id, e.type, e.payment_id, d.merchant_id, d.state, d.attempts, d.next_at,
        e.occurred_at
    FROM wanted w
    CROSS JOIN LATERAL (
        SELECT merchant_id, state, attempts, next_at
        FROM delivery
        WHERE event_id = w.event_id
        LIMIT 1
    ) d
    CROSS JOIN LATERAL (
        SELECT type, payment_id, occurred_at
        FROM event
        WHERE id = w.event_id
        LIMIT 1
    ) e
    WHERE ($1::bigint IS NULL OR d.merchant_id = $1)
        AND ($2::text IS NULL OR d.state = $2)
        AND ($3::timestamptz IS NULL OR e.occurred_at >= $3)
        AND ($4::timestamptz IS NULL OR e.occurred_at < $4)
        AND (NOT $7::boolean OR d.attempts > 0)
    ORDER BY w.event_id DESC
    LIMIT $6
"""
_END: LiteralString = "coalesce($5::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')"
_MERCHANTS: LiteralString = """
            FROM (SELECT id FROM merchant WHERE id = $1 OR $1::bigint IS NULL LIMIT 100000) m
"""
_MISSED: LiteralString = (
    """
    WITH wanted AS (
        SELECT o.event_id"""
    + _MERCHANTS
    + """
        CROSS JOIN LATERAL (
            SELECT event_id
            FROM delivery
            WHERE state IN ('dead', 'skipped') AND state = $2 AND merchant_id = m.id
                AND event_id < """
    + _END
    + """
            ORDER BY event_id DESC
            LIMIT 10000
        ) o
        ORDER BY o.event_id DESC
        LIMIT 10000
    )"""
)
_PENDING: LiteralString = (
    """
    WITH wanted AS (
        SELECT o.event_id"""
    + _MERCHANTS
    + """
        CROSS JOIN LATERAL (
            SELECT event_id
            FROM delivery
            WHERE state = 'pending' AND merchant_id = m.id
            ORDER BY next_at
            LIMIT 10000
        ) o
        WHERE o.event_id < """
    + _END
    + """
        ORDER BY o.event_id DESC
        LIMIT 10000
    )"""
)
_OF_ALL: LiteralString = (
    """
    WITH wanted AS (
        SELECT id AS event_id
        FROM event
        WHERE id < """
    + _END
    + """
        ORDER BY id DESC
        LIMIT 10000
    )"""
)
_OF_MERCHANT: LiteralString = (
    """
    WITH wanted AS (
        SELECT id AS event_id
        FROM event
        WHERE merchant_id = $1 AND id < """
    + _END
    + """
        ORDER BY id DESC
        LIMIT 10000
    )"""
)


async def list_deliveries(
    database: Executor, wanted: DeliveryFilter, limit: int
) -> list[DeliveryRecord]:
    """List deliveries, newest first."""
    values = (
        wanted.merchant_id,
        wanted.state,
        wanted.since,
        wanted.until,
        wanted.before,
        limit,
        wanted.tried,
    )
    if wanted.state in {"dead", "skipped"}:
        rows = await database.fetch(_MISSED + _SHOWN, *values)
    elif wanted.state == "pending":
        rows = await database.fetch(_PENDING + _SHOWN, *values)
    elif wanted.merchant_id is not None:
        rows = await database.fetch(_OF_MERCHANT + _SHOWN, *values)
    else:
        rows = await database.fetch(_OF_ALL + _SHOWN, *values)
    return [DeliveryRecord(**row) for row in rows]
