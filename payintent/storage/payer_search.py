"""Search payments by payer data, sealed or in plain text; each form has its own index.

The merchant is part of the query, so that matches of different merchants do not use up the limit.
"""

from typing import LiteralString
from uuid import UUID

from payintent.storage.database import Executor
from payintent.storage.payment_search import SHARED_MAX

_PAYMENTS: LiteralString = """
    SELECT id FROM payment WHERE (merchant_id = $5 OR $5::bigint IS NULL) AND """
_BY_ORDER: LiteralString = (
    _PAYMENTS
    + "hashtextextended(payment_order_id(metadata), 0) = hashtextextended($1, 0)"
    + " AND payment_order_id(metadata) = $1 UNION ALL "
    + _PAYMENTS
    + """json_typeof(metadata) = 'string'
        AND split_part(metadata #>> '{}', ':', 2) = ANY($3::text[])
        AND split_part(metadata #>> '{}', ':', 3) = ANY($4::text[])
    LIMIT $2
    """
)
_BY_EMAIL: LiteralString = (
    _PAYMENTS
    + "lower(payer_email) = lower($1) UNION ALL"
    + _PAYMENTS
    + """starts_with(payer_email, 'sealed:')
        AND split_part(payer_email, ':', 2) = ANY($3::text[])
        AND split_part(payer_email, ':', 3) = ANY($4::text[])
    LIMIT $2
    """
)


async def find_by_order(
    database: Executor, order_id: str, merchant_id: int | None = None
) -> list[UUID]:
    sealing = database.payer_sealing
    digests = sealing.digests_of_order(order_id)
    values = (order_id, SHARED_MAX, sealing.key_names, digests, merchant_id)
    return [row["id"] for row in await database.fetch(_BY_ORDER, *values)]


async def find_by_email(
    database: Executor, email: str, merchant_id: int | None = None
) -> list[UUID]:
    """Find payments by their payer's e-mail address, case-insensitively."""
    sealing = database.payer_sealing
    digests = sealing.digests_of_email(email)
    values = (email, SHARED_MAX, sealing.key_names, digests, merchant_id)
    return [row["id"] for row in await database.fetch(_BY_EMAIL, *values)]
