"""Refunds of a merchant's payments, as its members and its server list them."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import LiteralString
from uuid import UUID

from payintent.domain.refund import Refund
from payintent.storage import refunds
from payintent.storage.database import Executor

_LAST = UUID(int=2**128 - 1)
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)
_LAST_CHANGED: LiteralString = (
    "SELECT"
    + refunds.COLUMNS
    + """
    FROM refund r
    WHERE r.merchant_id = $1 AND r.payment_id IS NOT NULL AND r.case_id IS NULL
        AND (r.updated_at, r.id) < ($2, $3)
        AND ($4::timestamptz IS NULL OR r.updated_at >= $4)
    """
)
_NEWEST_FIRST = " ORDER BY r.updated_at DESC, r.id DESC LIMIT $5"


@dataclass(frozen=True, slots=True, kw_only=True)
class MerchantRefundFilter:
    """Which of a merchant's refunds to list; `before` is where the last page ended."""

    merchant_id: int
    status: str | None = None
    updated_since: datetime | None = None
    before: tuple[datetime, UUID] | None = None  # (`updated_at`, id)


async def page(
    database: Executor, merchant_id: int, before: UUID | None, limit: int
) -> list[Refund]:
    """List a page of the refunds of a merchant's payments; those of cases are the operator's.

    Only the index of a merchant's refunds has this order, else those of all may be read.
    """
    rows = await database.fetch(
        "SELECT"
        + refunds.COLUMNS
        + """
        FROM refund r
        WHERE r.merchant_id BETWEEN $1 AND $1 AND r.payment_id IS NOT NULL AND r.case_id IS NULL
            AND r.id < $2
        ORDER BY r.merchant_id DESC, r.id DESC
        LIMIT $3
        """,
        merchant_id,
        before or _LAST,
        limit,
    )
    return [refunds.from_row(row) for row in rows]


async def page_by_update(
    database: Executor, wanted: MerchantRefundFilter, limit: int
) -> list[Refund]:
    """List a page of the refunds of a merchant's payments, the last changed first.

    The index of refunds by status has this order: a rare one is not looked for among all.
    """
    before = wanted.before or (_END_OF_TIME, _LAST)
    given = (wanted.merchant_id, *before, wanted.updated_since, limit)
    if wanted.status is None:
        rows = await database.fetch(_LAST_CHANGED + _NEWEST_FIRST, *given)
    else:
        rows = await database.fetch(
            _LAST_CHANGED + " AND r.status = $6" + _NEWEST_FIRST, *given, wanted.status
        )
    return [refunds.from_row(row) for row in rows]
