"""Events as their merchant may read them: listed by id, newest first, with their deliveries."""

from dataclasses import dataclass
from uuid import UUID

from payintent.storage.database import Executor
from payintent.storage.delivery_list import DeliveryFilter, list_deliveries
from payintent.storage.outbox import DeliveryRecord, EventRecord, event_from_row

_LAST = UUID(int=2**128 - 1)
_NOT_DELIVERED = frozenset({"pending", "dead", "skipped"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which of a merchant's events to list; `before` is where the last page ended."""

    merchant_id: int
    state: str | None = None
    before: UUID | None = None


async def page(database: Executor, wanted: EventFilter, limit: int) -> list[DeliveryRecord]:
    """List a page of events with the state of their deliveries.

    Only the index of a merchant's events has this order, and each delivery is looked up: else
    those of all merchants may be read, which is long where this one's are old or few. What was not
    delivered has indexes of its own; of what was, the newest so many events are looked through.
    """
    if wanted.state in _NOT_DELIVERED:
        few = DeliveryFilter(
            merchant_id=wanted.merchant_id, state=wanted.state, before=wanted.before
        )
        return await list_deliveries(database, few, limit)
    rows = await database.fetch(
        """
        SELECT d.event_id, e.type, e.payment_id, d.merchant_id, d.state, d.attempts, d.next_at,
            e.occurred_at
        FROM (
            SELECT *
            FROM event
            WHERE merchant_id BETWEEN $1 AND $1 AND id < $2
            ORDER BY merchant_id DESC, id DESC
            LIMIT 10000
        ) e
        CROSS JOIN LATERAL (SELECT * FROM delivery WHERE event_id = e.id LIMIT 1) d
        WHERE $3::text IS NULL OR d.state = $3
        ORDER BY e.merchant_id DESC, e.id DESC
        LIMIT $4
        """,
        wanted.merchant_id,
        wanted.before or _LAST,
        wanted.state,
        limit,
    )
    return [DeliveryRecord(**row) for row in rows]


async def get(database: Executor, merchant_id: int, event_id: UUID) -> EventRecord | None:
    """Read an event of a merchant; None where it has none of this id."""
    row = await database.row(
        """
        SELECT id, payment_id, merchant_id, type, body, occurred_at
        FROM event
        WHERE id = $2 AND merchant_id = $1
        """,
        merchant_id,
        event_id,
    )
    return event_from_row(row, database.payer_sealing) if row else None


async def get_delivery(
    database: Executor, merchant_id: int, event_id: UUID
) -> DeliveryRecord | None:
    """Read how far the delivery of a merchant's event is; None where it has none of this id."""
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
    return DeliveryRecord(**row) if row else None
