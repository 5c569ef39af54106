"""Read events and deliveries with the permissions of their merchant."""

from uuid import UUID

from payintent.storage.database import Executor
from payintent.storage.outbox import DeliveryRecord, EventRecord, event_from_row


async def get(database: Executor, merchant_id: int, event_id: UUID) -> EventRecord | None:
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
