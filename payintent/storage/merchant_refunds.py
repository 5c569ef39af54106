"""Refunds of a merchant's payments as its members read them: listed by id, newest first."""

from uuid import UUID

from payintent.domain.refund import Refund
from payintent.storage import refunds
from payintent.storage.database import Executor

_LAST = UUID(int=2**128 - 1)


async def page(
    database: Executor, merchant_id: int, before: UUID | None, limit: int
) -> list[Refund]:
    """List a page of the refunds of a merchant's payments; those of cases are the operator's."""
    rows = await database.fetch(
        "SELECT"
        + refunds.COLUMNS
        + """
        FROM refund r
        WHERE r.merchant_id = $1 AND r.payment_id IS NOT NULL AND r.case_id IS NULL AND r.id < $2
        ORDER BY r.id DESC
        LIMIT $3
        """,
        merchant_id,
        before or _LAST,
        limit,
    )
    return [refunds.from_row(row) for row in rows]
