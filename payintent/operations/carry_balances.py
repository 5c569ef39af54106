"""Books of merchants that were moved, where operations need them together in the present cell."""

from collections.abc import Iterable, Sequence

from payintent.domain.errors import ErrorCode, RefusedError, StorageUnavailableError
from payintent.operations.base import OperationContext
from payintent.operations.validation import is_database_id
from payintent.payments.carry_balances import (
    carry_from,
    list_formers,
    naming,
    require_latest_place,
)
from payintent.storage import merchant_cells, payouts
from payintent.storage.cells import Cells
from payintent.storage.database import Tx
from payintent.storage.payouts import PayoutRecord

_AGAIN_S = 5


async def carry_before_payout(context: OperationContext, merchant_ids: Iterable[int]) -> None:
    """Carry what merchants owe, or are owed, to the cells that their payouts are entered in.

    So a payout is held to all of it. A cell that does not answer may have refunds that nobody knows
    of: then it is refused.
    """
    for merchant_id in filter(is_database_id, merchant_ids):
        try:
            await require_latest_place(context.cells, merchant_id)
            await carry_to_present(context.cells, merchant_id)
        except StorageUnavailableError as error:
            raise RefusedError(
                ErrorCode.SERVICE_UNAVAILABLE,
                f"what merchant {merchant_id} is owed in all its cells is not known: {error}",
                retry_after_s=_AGAIN_S,
            ) from error


async def carry_to_present(cells: Cells, merchant_id: int) -> None:
    """Carry what all other cells owe a merchant to the one that it is in now."""
    for former in await list_formers(cells, merchant_id):
        await carry_from(cells, merchant_id, former)


async def find_recorded_before(
    cells: Cells, merchant_id: int, references: Sequence[str]
) -> dict[str, PayoutRecord]:
    """Find the payouts with these references that were recorded in a cell before the present one.

    Since what is owed there was carried none can come: a cell that knows of the move refuses it.
    """
    found: dict[str, PayoutRecord] = {}
    for former in await list_formers(cells, merchant_id):
        with naming(former):
            standing = await payouts.list_standing(cells.at(former), merchant_id, references)
        found |= {record.reference: record for record in standing}
    return found


async def require_present(context: OperationContext, tx: Tx, merchant_id: int) -> None:
    """Refuse a payout in a cell that its merchant has left this moment; a trigger holds it too."""
    if not context.cells.are_several:
        return
    [place] = await merchant_cells.find_places(tx, [merchant_id])
    if place.cell != context.database.id_generator.cell:
        raise RefusedError(
            ErrorCode.CONFLICT, f"merchant {merchant_id} is being moved: do it again"
        )
