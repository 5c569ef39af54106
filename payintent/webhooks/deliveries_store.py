"""Queries that list, count and replay webhook deliveries.

If no index matches a list's filters, only the newest events are scanned, up to `SCANNED_MAX`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from payintent.core import ids
from payintent.db.database import Executor, Row, Tx
from payintent.db.lists import SCANNED_MAX, KeysetList, build
from payintent.webhooks.model import MissedEvents
from payintent.webhooks.outbox_store import DeliveryRecord


def _join_deliveries(candidates: KeysetList, order: LiteralString = "w.event_id") -> KeysetList:
    """Join candidates to their deliveries and events by key, so that no other rows are read."""
    return candidates.as_cte(
        "candidate AS",
        SCANNED_MAX,
        """
        SELECT w.event_id, e.type, e.payment_id, d.merchant_id, d.state, d.attempts, d.next_at,
            e.occurred_at
        FROM candidate w
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
        """,
        order,
        merchant_id="d.merchant_id = {}",
        state="d.state = {}",
        since="e.occurred_at >= {}",
        until="e.occurred_at < {}",
        has_attempts="NOT {} OR d.attempts > 0",
    )


def _list_by_merchant(clause: LiteralString) -> KeysetList:
    """Select candidates merchant by merchant, using a partial index.

    `clause` consists of the condition and the order, which must match the index.
    """
    return _join_deliveries(
        KeysetList(
            """
            SELECT o.event_id
            FROM (
                SELECT id FROM merchant WHERE id = {merchant_id} OR {merchant_id} IS NULL
                LIMIT 100000
            ) m
            CROSS JOIN LATERAL (
                SELECT event_id FROM delivery WHERE merchant_id = m.id AND """
            + clause
            + """
                LIMIT 10000
            ) o
            """,
            "o.event_id",
        )
    )


_MISSED_DELIVERIES = _list_by_merchant(
    "state IN ('dead', 'skipped') AND state = {state} AND event_id < {last} ORDER BY event_id DESC"
)
_PENDING_DELIVERIES = _list_by_merchant("state = 'pending' ORDER BY next_at")
_ALL_DELIVERIES = _join_deliveries(KeysetList("SELECT id AS event_id FROM event", "id"))
_MERCHANT_DELIVERIES = _join_deliveries(
    KeysetList("SELECT merchant_id, id AS event_id FROM event", "id", merchant="merchant_id"),
    "w.merchant_id, w.event_id",
)
_ORDER_DELIVERIES = _join_deliveries(
    KeysetList("SELECT id AS event_id FROM event", "id", "payment_id = ANY({payment_ids}::uuid[])")
)


async def list_deliveries(
    database: Executor,
    limit: int,
    before: UUID | None = None,
    *,
    merchant_id: int | None = None,
    state: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    has_attempts: bool = False,
    payment_ids: Sequence[UUID] | None = None,
) -> list[DeliveryRecord]:
    """List deliveries, newest first. `before` is the last event ID of the previous page.

    `has_attempts` restricts the list to deliveries with at least one attempt.
    """
    if payment_ids is not None:
        deliveries = _ORDER_DELIVERIES
    elif state in {"dead", "skipped"}:
        deliveries = _MISSED_DELIVERIES
    elif state == "pending":
        deliveries = _PENDING_DELIVERIES
    else:
        deliveries = _ALL_DELIVERIES if merchant_id is None else _MERCHANT_DELIVERIES
    rows = await deliveries.page(
        database,
        before,
        limit,
        merchant_id=merchant_id,
        state=state,
        since=since,
        until=until,
        has_attempts=has_attempts,
        payment_ids=payment_ids,
    )
    return [_to_record(row) for row in rows]


def _to_record(row: Row) -> DeliveryRecord:
    return build(DeliveryRecord, row, payment_id=ids.format_id(ids.PAYMENT, row["payment_id"]))


async def get_delivery(
    database: Executor, merchant_id: int, event_id: UUID
) -> DeliveryRecord | None:
    row = await database.row(
        """
        SELECT d.event_id, e.type, e.payment_id, d.merchant_id, d.state, d.attempts, d.next_at,
            e.occurred_at
        FROM event e
        JOIN delivery d ON d.event_id = e.id
        WHERE e.id = $2 AND e.merchant_id = $1
        """,
        merchant_id,
        event_id,
    )
    return _to_record(row) if row else None


async def find_payment_event(database: Executor, merchant_id: int, payment_id: UUID) -> UUID | None:
    return await database.value(
        "SELECT id FROM event WHERE payment_id = $1 AND merchant_id = $2", payment_id, merchant_id
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedCount:
    """The number of missed events and affected merchants, and when the events occurred."""

    events: int
    merchants: int
    oldest: datetime | None
    newest: datetime | None


async def replay(tx: Tx, event_id: UUID) -> int | None:
    """Restart an event's delivery, regardless of its state, and return the merchant ID.

    Returns None if the event does not exist.
    """
    tx.has_new_events = True
    return await tx.value(
        """
        UPDATE delivery
        SET state = 'pending', attempts = 0, next_at = clock(), lease_until = '-infinity',
            delivered_at = NULL
        WHERE event_id = $1
        RETURNING merchant_id
        """,
        event_id,
    )


async def replay_missed(tx: Tx, criteria: MissedEvents, after: UUID, limit: int) -> list[UUID]:
    """Restart up to `limit` dead and skipped deliveries, in event order, starting after `after`.

    Returns the sorted event IDs.
    """
    tx.has_new_events = True
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
        criteria.merchant_id,
        criteria.since,
        criteria.until,
        after,
        limit,
    )
    return sorted(row["event_id"] for row in rows)


async def count_missed(database: Executor, criteria: MissedEvents) -> MissedCount:
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
        criteria.merchant_id,
        criteria.since,
        criteria.until,
    )
    assert row is not None  # noqa: S101 - an aggregate always returns a row
    return MissedCount(**row)
