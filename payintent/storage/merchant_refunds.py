"""Refunds of a merchant's payments, as its members and its server list them."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import LiteralString
from uuid import UUID

from payintent.domain.refund import Refund
from payintent.storage import refunds
from payintent.storage.database import Executor
from payintent.storage.lists import LAST_ID, KeysetList

_END_OF_TIME = datetime.max.replace(tzinfo=UTC)
_NEWEST = KeysetList(
    "SELECT" + refunds.COLUMNS + "FROM refund r",
    "r.id",
    "r.payment_id IS NOT NULL AND r.case_id IS NULL",
    merchant="r.merchant_id",
)


def _last_changed(*where: LiteralString) -> KeysetList:
    return KeysetList(
        "SELECT" + refunds.COLUMNS + "FROM refund r",
        "r.updated_at, r.id",
        "r.merchant_id = {merchant_id} AND r.payment_id IS NOT NULL AND r.case_id IS NULL",
        *where,
        updated_since="r.updated_at >= {}",
    )


_LAST_CHANGED, _LAST_CHANGED_OF_STATUS = _last_changed(), _last_changed("r.status = {status}")


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
    """List a page of the refunds of a merchant's payments, without refunds of cases."""
    rows = await _NEWEST.page(database, before, limit, merchant_id=merchant_id)
    return [refunds.from_row(row) for row in rows]


async def page_by_update(
    database: Executor, wanted: MerchantRefundFilter, limit: int
) -> list[Refund]:
    """List a page of the refunds of a merchant's payments, the last changed first.

    The index of refunds by status has this order: a rare one is not looked for among all.
    """
    changed = _LAST_CHANGED if wanted.status is None else _LAST_CHANGED_OF_STATUS
    last = wanted.before or (_END_OF_TIME, LAST_ID)
    rows = await changed.page(database, last, limit, **asdict(wanted))
    return [refunds.from_row(row) for row in rows]
