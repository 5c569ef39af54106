"""Carries what former cells owe their merchants to the cells that these are in now.

It is a pair of ledger entries, one in each cell's ledger. The former cell's is written first, so
that between the two a merchant is owed less, and never twice as much. Either half may be written
again at any time: each cell takes a transfer once, by its id. What the merchant owes is carried in
the same way. Nothing else changes books across cells.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from payintent.domain.cell_transfer import CellTransfer, transfer_entry
from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.log import get_logger
from payintent.storage import cell_transfers, ledger, merchant_cells, payouts, statements
from payintent.storage.cell_transfers import TransferGroup, TransferSum
from payintent.storage.cells import Cells
from payintent.storage.merchant_cells import MerchantPlace

_SUM_S = 300.0  # what a merchant is owed is summed of all its entries
_LOCK_S = 30.0
_PAGE = 100
_UNDER_WAY_S = 1.0  # a half that is younger is most likely being written this moment
_log = get_logger("books")


@dataclass(frozen=True, slots=True)
class MissingHalf:
    """A transfer that one of its cells lacks, and for how long the other one has had it."""

    transfer: CellTransfer
    cell: int
    age_s: float


async def list_formers(cells: Cells, merchant_id: int) -> list[int]:
    """List the cells that may owe a merchant of another cell; with one cell there is none.

    That which it left last comes last. A cell with an old copy may take a later one for the present
    one: what it gives there is carried on where all of them carry in this order.
    """
    if not cells.are_several:
        return []
    _, *others = await cells.numbers_with_money(merchant_id)
    return others[::-1]


async def require_latest_place(cells: Cells, merchant_id: int) -> None:
    """Raise where a cell knows a later place of a merchant than cell 0: that was restored.

    Cells are asked before cell 0, so that none can know of a move under way before it.
    """
    if not cells.are_several:
        return
    places = dict[int, MerchantPlace]()
    for number in cells.numbers()[1:]:
        try:
            [places[number]] = await merchant_cells.find_places(cells.at(number), [merchant_id])
        except StorageUnavailableError:  # where it has payments of the merchant it is missed later
            continue
    with naming(0):
        [place] = await merchant_cells.find_places(cells.control, [merchant_id])
    for number, there in places.items():
        if there.since is not None and (place.since is None or there.since > place.since):
            raise StorageUnavailableError(
                f"cell {number} knows a later place of it than cell 0, which was restored: run "
                f"payintent cell take-back {number}"
            )


async def carry_from(cells: Cells, merchant_id: int, former: int) -> None:
    """Carry what one cell owes a merchant to the cell that it is in now, as that cell knows it.

    First each side is given the halves that only the other one has: a cell that lost its last
    commits would carry once more what had arrived. Raises `StorageUnavailableError` where one of
    the merchant's cells does not answer, or knows nothing of the move yet.
    """
    with naming(former):
        [place] = await merchant_cells.find_places(cells.at(former), [merchant_id])
    if place.cell == former:
        raise StorageUnavailableError(f"cell {former} does not know yet where the merchant is")
    for other in sorted({*place.with_money} - {former}):
        await mend_between(cells, former, other, merchant_id)
    for transfer in await _begin(cells, merchant_id, former, place.cell):
        await _arrive(cells, transfer)


async def finish_transfers(cells: Cells, former: int) -> bool:
    """Write the second halves that are missing; True where there may be more."""
    waiting = await cell_transfers.list_waiting(cells.at(former), _PAGE)
    away: StorageUnavailableError | None = None
    for transfer in waiting:
        try:
            await _arrive(cells, transfer)
        except StorageUnavailableError as error:
            away = error
    if away is not None:
        raise away
    return len(waiting) == _PAGE


async def carry_due(cells: Cells, former: int) -> bool:
    """Carry what a cell owes merchants of other cells, each once a day; and mend what was lost.

    A cell that is away keeps none from being carried that has nothing to do with it.
    """
    away: StorageUnavailableError | None = None
    for other in cells.numbers():
        if other > former:
            try:
                await mend_between(cells, former, other)
            except StorageUnavailableError as error:
                away = error
    after = 0
    while owed := await cell_transfers.list_owed(cells.at(former), after, _PAGE):
        for merchant_id in owed:
            try:
                await carry_from(cells, merchant_id, former)
            except StorageUnavailableError as error:
                away = error
        after = owed[-1]
    if away is not None:
        raise away
    return False


async def mend_between(
    cells: Cells, first: int, second: int, merchant_id: int | None = None
) -> list[MissingHalf]:
    """Give each of two cells the halves that only the other one has; returns what was missing."""
    missing = await find_missing_halves(cells, first, second, merchant_id)
    for half in missing:
        if half.age_s > _UNDER_WAY_S:
            _log.warning(
                "transfer_half_missing",
                transfer=str(half.transfer.id),
                merchant=half.transfer.merchant_id,
                cell=half.cell,
            )
        await _add_half(cells, half.cell, half.transfer)
    return missing


async def find_missing_halves(
    cells: Cells, first: int, second: int, merchant_id: int | None = None
) -> list[MissingHalf]:
    """Find the transfers between two cells that only one of them has."""
    pair = (first, second)
    sums: list[dict[TransferGroup, TransferSum]] = []
    for cell in pair:
        with naming(cell):
            sums.append(await cell_transfers.sum_between(cells.at(cell), pair, merchant_id))
    if sums[0] == sums[1]:
        return []
    apart = sorted({group.merchant_id for group, _ in sums[0].items() ^ sums[1].items()})
    rows: list[dict[CellTransfer, float]] = []
    for cell in pair:
        with naming(cell):
            rows.append(await cell_transfers.list_between(cells.at(cell), pair, apart))
    return [
        *(
            MissingHalf(lost, first, age_s)
            for lost, age_s in rows[1].items()
            if lost not in rows[0]
        ),
        *(
            MissingHalf(lost, second, age_s)
            for lost, age_s in rows[0].items()
            if lost not in rows[1]
        ),
    ]


async def _begin(cells: Cells, merchant_id: int, former: int, present: int) -> list[CellTransfer]:
    """Write the former cell's halves, of all currencies in one transaction."""
    database = cells.at(former)
    begun: list[CellTransfer] = []
    with naming(former):
        async with database.transaction() as tx:
            await tx.allow(statement_s=_SUM_S, lock_s=_LOCK_S)
            await payouts.lock_payable(tx, merchant_id)
            for balance in await statements.list_balances(tx, merchant_id):
                money = (balance.currency, balance.chain or None)
                new_id = tx.id_generator.new_id()
                transfer = balance.amount_minor and await cell_transfers.add_new(
                    tx, new_id, merchant_id, money, present
                )
                if transfer:
                    await ledger.add(tx, [transfer_entry(transfer, former)])
                    begun.append(transfer)
    return begun


async def _arrive(cells: Cells, transfer: CellTransfer) -> None:
    """Write the present cell's half, and note in the former one that it is there."""
    await _add_half(cells, transfer.to_cell, transfer)
    with naming(transfer.from_cell):
        await cell_transfers.mark_arrived(cells.at(transfer.from_cell), transfer.id)


async def _add_half(cells: Cells, cell: int, transfer: CellTransfer) -> None:
    with naming(cell):
        async with cells.at(cell).transaction() as tx:
            if await cell_transfers.add_half(tx, transfer):
                await ledger.add(tx, [transfer_entry(transfer, cell)])


@contextmanager
def naming(cell: int) -> Generator[None]:
    """Name the cell that does not answer."""
    try:
        yield
    except (StorageUnavailableError, LockTimeoutError) as error:
        why = str(error) or type(error).__name__
        raise StorageUnavailableError(f"cell {cell} does not answer ({why})") from error
