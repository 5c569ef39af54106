"""Refunds of a merchant's payments, as the portal and the API list them."""

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


def _build_list_by_update(*where: LiteralString) -> KeysetList:
    return KeysetList(
        "SELECT" + refunds.COLUMNS + "FROM refund r",
        "r.updated_at, r.id",
        "r.merchant_id = {merchant_id} AND r.payment_id IS NOT NULL AND r.case_id IS NULL",
        *where,
        updated_since="r.updated_at >= {}",
    )


_BY_UPDATE, _BY_UPDATE_OF_STATUS = (
    _build_list_by_update(),
    _build_list_by_update("r.status = {status}"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MerchantRefundFilter:
    merchant_id: int
    status: str | None = None
    updated_since: datetime | None = None
    before: tuple[datetime, UUID] | None = None  # `updated_at` and id of the previous page's last


async def page(
    database: Executor, merchant_id: int, before: UUID | None, limit: int
) -> list[Refund]:
    """List a merchant's refunds, newest first, without refunds of cases."""
    rows = await _NEWEST.page(database, before, limit, merchant_id=merchant_id)
    return [refunds.from_row(row) for row in rows]


async def page_by_update(
    database: Executor, criteria: MerchantRefundFilter, limit: int
) -> list[Refund]:
    """List a merchant's refunds, most recently updated first, without refunds of cases.

    A status has a list of its own, which follows its index even if the status is rare.
    """
    refund_list = _BY_UPDATE if criteria.status is None else _BY_UPDATE_OF_STATUS
    last = criteria.before or (_END_OF_TIME, LAST_ID)
    rows = await refund_list.page(database, last, limit, **asdict(criteria))
    return [refunds.from_row(row) for row in rows]
