"""A merchant's payments in all cells that it has had: one list, newest first."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.payments.lookup import list_merchant_payments
from payintent.storage.cells import ByCell, Cells
from payintent.storage.merge_lists import ask_cells
from payintent.storage.payment_list import PaymentFilter
from payintent.storage.payments import PaymentSnapshot
from payintent.storage.replica import ReadDatabase

_Place = tuple[datetime, UUID]


@dataclass(frozen=True, slots=True, kw_only=True)
class MerchantPaymentPage:
    """A page of a merchant's payments, and the place behind which the next one begins."""

    payments: Sequence[PaymentSnapshot]
    following: _Place | None
    is_whole: bool  # False: a cell that has some of them does not answer


async def list_over_cells(
    cells: Cells, readings: ByCell[ReadDatabase], wanted: PaymentFilter
) -> MerchantPaymentPage:
    """List a merchant's payments; a single cell is asked as if there were no others."""

    async def read(cell: int) -> tuple[list[PaymentSnapshot], _Place | None]:
        return await list_merchant_payments(cells.at(cell), readings.at(cell), wanted)

    numbers = await cells.numbers_of_merchant(wanted.merchant_id)
    pages, away = await ask_cells({cell: cell for cell in numbers}, read)
    if len(numbers) == 1:
        [(payments, following)] = pages.values()
        return MerchantPaymentPage(payments=payments, following=following, is_whole=True)
    ends = [end for _, end in pages.values() if end is not None]
    following = max(ends, default=None)
    snapshots = [
        snapshot
        for payments, _ in pages.values()
        for snapshot in payments
        if following is None or _place(snapshot) >= following
    ]
    snapshots.sort(key=_place, reverse=True)
    if len(snapshots) > wanted.limit:
        snapshots = snapshots[: wanted.limit]
        following = _place(snapshots[-1])
    return MerchantPaymentPage(payments=snapshots, following=following, is_whole=not away)


def _place(snapshot: PaymentSnapshot) -> _Place:
    return snapshot.payment.created_at, snapshot.payment.id
