"""Resend events with their original ids: a single event, or all undelivered events."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.domain.delivery import MissedEvents
from payintent.storage.database import Executor, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedCount:
    """The number of undelivered events and their merchants, and the period of the events."""

    events: int
    merchants: int
    oldest: datetime | None
    newest: datetime | None


async def replay(tx: Tx, event_id: UUID) -> int | None:
    """Restart the delivery of an event, whatever its state, and return its merchant.

    Returns None if there is no such event.
    """
    tx.wakes_delivery = True
    row = await tx.row(
        """
        UPDATE delivery
        SET state = 'pending', attempts = 0, next_at = clock(), lease_until = '-infinity',
            delivered_at = NULL
        WHERE event_id = $1
        RETURNING merchant_id
        """,
        event_id,
    )
    return row["merchant_id"] if row else None


async def replay_missed(tx: Tx, missed: MissedEvents, after: UUID, limit: int) -> list[UUID]:
    """Restart dead and skipped deliveries and return their event ids in order.

    It restarts `limit` deliveries with ids after `after`, or fewer if there are no more.
    """
    tx.wakes_delivery = True
    rows = await tx.fetch(
        """
        WITH missed AS MATERIALIZED (
            SELECT d.event_id
            FROM delivery d
            JOIN event e ON e.id = d.event_id
            WHERE d.state IN ('dead', 'skipped') AND d.event_id > $4
                AND ($1::bigint IS NULL OR d.merchant_id = $1)
                AND ($2::timestamptz IS NULL OR e.occurred_at >= $2)
                AND ($3::timestamptz IS NULL OR e.occurred_at < $3)
            ORDER BY d.event_id
            LIMIT $5
            FOR UPDATE OF d
        )
        UPDATE delivery d
        SET state = 'pending', attempts = 0, next_at = clock(), lease_until = '-infinity'
        FROM missed m
        WHERE d.event_id = m.event_id
        RETURNING d.event_id
        """,
        missed.merchant_id,
        missed.since,
        missed.until,
        after,
        limit,
    )
    return sorted(row["event_id"] for row in rows)


async def count_missed(database: Executor, missed: MissedEvents) -> MissedCount:
    row = await database.row(
        """
        SELECT count(*) AS events, count(DISTINCT d.merchant_id) AS merchants,
            min(e.occurred_at) AS oldest, max(e.occurred_at) AS newest
        FROM delivery d
        JOIN event e ON e.id = d.event_id
        WHERE d.state IN ('dead', 'skipped')
            AND ($1::bigint IS NULL OR d.merchant_id = $1)
            AND ($2::timestamptz IS NULL OR e.occurred_at >= $2)
            AND ($3::timestamptz IS NULL OR e.occurred_at < $3)
        """,
        missed.merchant_id,
        missed.since,
        missed.until,
    )
    assert row is not None  # noqa: S101 - a count is one row
    return MissedCount(**row)
