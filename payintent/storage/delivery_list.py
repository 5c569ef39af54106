"""List deliveries for operators.

If no index has the order of the list, only the newest events are scanned, up to a limit.
"""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from payintent.storage.database import Executor
from payintent.storage.lists import SCANNED_MAX, KeysetList
from payintent.storage.outbox import DeliveryRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    """Deliveries to list, newest first; `before` is the last event of the previous page."""

    merchant_id: int | None = None
    state: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    tried: bool = False  # only deliveries with at least one attempt
    before: UUID | None = None


def _deliveries(candidates: KeysetList, order: LiteralString = "w.event_id") -> KeysetList:
    """Look up rows one by one, in the order of the list, so that no other rows are read."""
    return candidates.within(
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
        tried="NOT {} OR d.attempts > 0",
    )


def _undelivered(deliveries: LiteralString) -> KeysetList:
    """List each merchant's deliveries by a partial index of undelivered events."""
    return _deliveries(
        KeysetList(
            """
            SELECT o.event_id
            FROM (
                SELECT id FROM merchant WHERE id = {merchant_id} OR {merchant_id} IS NULL
                LIMIT 100000
            ) m
            CROSS JOIN LATERAL (
                SELECT event_id FROM delivery WHERE merchant_id = m.id AND """
            + deliveries
            + """
                LIMIT 10000
            ) o
            """,
            "o.event_id",
        )
    )


_MISSED = _undelivered(
    "state IN ('dead', 'skipped') AND state = {state} AND event_id < {last} ORDER BY event_id DESC"
)
_PENDING = _undelivered("state = 'pending' ORDER BY next_at")
_OF_ALL = _deliveries(KeysetList("SELECT id AS event_id FROM event", "id"))
_OF_MERCHANT = _deliveries(
    KeysetList("SELECT merchant_id, id AS event_id FROM event", "id", merchant="merchant_id"),
    "w.merchant_id, w.event_id",
)


async def list_deliveries(
    database: Executor, criteria: DeliveryFilter, limit: int
) -> list[DeliveryRecord]:
    if criteria.state in {"dead", "skipped"}:
        deliveries = _MISSED
    elif criteria.state == "pending":
        deliveries = _PENDING
    else:
        deliveries = _OF_ALL if criteria.merchant_id is None else _OF_MERCHANT
    rows = await deliveries.page(database, criteria.before, limit, **asdict(criteria))
    return [DeliveryRecord(**row) for row in rows]
