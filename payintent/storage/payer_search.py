"""Payments by what is of their payer, sealed or plain: each form has an index of its own.

Of one merchant only where one is given: what others share with it takes none of its places.
"""

from uuid import UUID

from payintent.storage.database import Executor
from payintent.storage.payment_search import SHARED_MAX


async def find_by_order(
    database: Executor, order_id: str, merchant_id: int | None = None
) -> list[UUID]:
    """Find payments by the `order_id` in their metadata."""
    sealing = database.payer_sealing
    rows = await database.fetch(
        """
        SELECT id
        FROM payment
        WHERE hashtextextended(payment_order_id(metadata), 0) = hashtextextended($1, 0)
            AND payment_order_id(metadata) = $1
            AND (merchant_id = $5 OR $5::bigint IS NULL)
        UNION ALL
        SELECT id
        FROM payment
        WHERE json_typeof(metadata) = 'string'
            AND split_part(metadata #>> '{}', ':', 2) = ANY($3::text[])
            AND split_part(metadata #>> '{}', ':', 3) = ANY($4::text[])
            AND (merchant_id = $5 OR $5::bigint IS NULL)
        LIMIT $2
        """,
        order_id,
        SHARED_MAX,
        sealing.key_names,
        sealing.digests_of_order(order_id),
        merchant_id,
    )
    return [row["id"] for row in rows]


async def find_by_email(
    database: Executor, email: str, merchant_id: int | None = None
) -> list[UUID]:
    """Find payments by their payer's e-mail, in capital or small letters."""
    sealing = database.payer_sealing
    rows = await database.fetch(
        """
        SELECT id
        FROM payment
        WHERE lower(payer_email) = lower($1)
            AND (merchant_id = $5 OR $5::bigint IS NULL)
        UNION ALL
        SELECT id
        FROM payment
        WHERE starts_with(payer_email, 'sealed:')
            AND split_part(payer_email, ':', 2) = ANY($3::text[])
            AND split_part(payer_email, ':', 3) = ANY($4::text[])
            AND (merchant_id = $5 OR $5::bigint IS NULL)
        LIMIT $2
        """,
        email,
        SHARED_MAX,
        sealing.key_names,
        sealing.digests_of_email(email),
        merchant_id,
    )
    return [row["id"] for row in rows]
