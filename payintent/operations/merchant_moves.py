"""Moves of merchants to other cells: new payments go there, open ones end where they are."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Annotated, ClassVar

from payintent.domain import ids
from payintent.domain.errors import (
    ErrorCode,
    LockTimeoutError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.log import get_logger
from payintent.operations.base import ChangeOperation, OperationContext
from payintent.operations.copy_tables import CellCopier
from payintent.operations.fields import MerchantId, option
from payintent.operations.validation import require_merchant
from payintent.storage import (
    cell_processes,
    cell_records,
    merchant_cells,
    merchants,
    test_clock,
    test_clock_cells,
)
from payintent.storage.cells import Cells
from payintent.storage.database import Database, Executor, Tx

CELLS_MAX = 4  # of one merchant: its lists ask each of them
_ANSWER_S = 2.0
_COPY_S = 10.0
_COPY_EVERY_S = 0.02
_CREATES_S = 30.0  # a create takes 10 s at most
_ENDER_EVERY_S = 1.0
_log = get_logger("moves")


@dataclass(frozen=True, slots=True, kw_only=True)
class MerchantMove:
    """Where a merchant's new payments are; its test side is moved with it."""

    merchant_id: int  # of the live side
    test_side: int | None
    cell: int
    former_cell: int
    begun: bool  # False where it was there already, or an earlier move was ended

    @property
    def sides(self) -> list[int]:
        """Return the merchants that were moved."""
        return [self.merchant_id, *([] if self.test_side is None else [self.test_side])]


class MoveMerchant(ChangeOperation[MerchantMove], frozen=True, kw_only=True):
    """Let a merchant have its new payments in another cell; run it again where it broke off.

    Payments that are open end where they are. Creates wait meanwhile, two seconds at most.
    """

    action: ClassVar[str] = "merchant.move"
    merchant_id: MerchantId
    to: Annotated[
        int, option("The cell's number, as `cell list` shows it.", min=0, max=ids.CELL_MAX)
    ]

    async def check(self, context: OperationContext) -> None:
        """Refuse a cell that takes none, and databases that do not answer."""
        if not 0 <= self.to <= ids.CELL_MAX:
            raise RefusedError(ErrorCode.BAD_REQUEST, f"a cell is from 0 to {ids.CELL_MAX}")
        merchant = await require_merchant(context.database, self.merchant_id)
        place, *_ = await merchant_cells.find_places(context.database, [merchant.id])
        await _require_open(context.database, self.to)
        for cell in {self.to, place.cell}:
            await _require_answer(context.cells, cell)

    async def apply(self, context: OperationContext, tx: Tx) -> MerchantMove:
        """Close the old place, and write the new one; nothing is created until it is open."""
        del context
        live, test_side = await _lock_sides(tx, self.merchant_id)
        await _require_open(tx, self.to)
        places = await merchant_cells.list_places(tx, live)
        former = places[-1].cell if places else 0
        unopened = bool(places) and places[-1].opened_at is None
        if unopened and former != self.to:
            raise RefusedError(
                ErrorCode.CONFLICT,
                f"it is being moved to cell {former}: run merchant move --to {former} to its end",
            )
        if (
            len({0 if not places else self.to, self.to, *(place.cell for place in places)})
            > CELLS_MAX
        ):
            raise RefusedError(
                ErrorCode.CONFLICT,
                f"a merchant is in {CELLS_MAX} cells at most, and it was in so many",
            )
        begins = former != self.to
        if begins:
            for side in filter(None, (live, test_side)):
                await merchant_cells.begin_move(tx, side, self.to)
        elif len(places) > 1:
            former = places[-2].cell
        return MerchantMove(
            merchant_id=live, test_side=test_side, cell=self.to, former_cell=former, begun=begins
        )

    async def finish(self, context: OperationContext, result: MerchantMove) -> None:
        """Wait for the creates of before, and open the new place."""
        try:
            await end_move(context.cells, result.sides, result.cell)
        except (StorageUnavailableError, LockTimeoutError, TimeoutError) as error:
            raise RefusedError(
                ErrorCode.SERVICE_UNAVAILABLE,
                f"the move has begun, and not ended ({error}): its creates are refused until it "
                "has. An API process tries again each second, and so may you",
            ) from error
        if why := await _carry(context.cells, result.merchant_id):
            context.warn(f"what the merchant is owed is carried to cell {result.cell} later: {why}")


class MoveEnder:
    """Ends the moves whose command was killed; any number of processes may do so at once."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells

    async def run(self) -> None:
        """Look every second until it is cancelled."""
        while True:
            await asyncio.sleep(_ENDER_EVERY_S)
            try:
                await self.step()
            except (StorageUnavailableError, LockTimeoutError, TimeoutError) as error:
                _log.warning("move_deferred", why=str(error) or type(error).__name__)
            except Exception as error:  # noqa: BLE001 - the next look may come through
                _log.error("move_failed", exc_info=error)

    async def step(self) -> None:
        """End every move that has begun; one that cannot be ended keeps no other waiting."""
        for merchant_id, cell in await merchant_cells.list_unopened(self._cells.control):
            try:
                await end_move(self._cells, [merchant_id], cell)
                await _carry(self._cells, merchant_id)
            except (StorageUnavailableError, LockTimeoutError, TimeoutError) as error:
                _log.warning("move_deferred", merchant=merchant_id, cell=cell, why=str(error))


async def end_move(cells: Cells, merchant_ids: Sequence[int], to_cell: int) -> None:
    """Do what is left of a move; it is safe at any time, by any number of processes.

    The old cell's own copy says that the place is closed before the creates of before are waited
    for, and only after that is the new one opened.
    """
    waiting = dict[int, dict[int, datetime]]()
    for merchant_id in merchant_ids:
        places = await merchant_cells.list_places(cells.control, merchant_id)
        if len(places) > 1 and places[-1].opened_at is None:
            waiting.setdefault(places[-2].cell, {})[merchant_id] = places[-1].since
    for former, of_cell in waiting.items():
        await _wait_for_copy(cells, former, list(of_cell))
        async with cells.at(former).transaction() as tx:
            await tx.allow(statement_s=_CREATES_S, lock_s=_CREATES_S)
            await merchant_cells.wait_for_creates(tx, of_cell, former)
            empty = await merchant_cells.list_empty(tx, of_cell)
        await merchant_cells.leave_empty(
            cells.control, {merchant_id: of_cell[merchant_id] for merchant_id in empty}
        )
        for merchant_id in of_cell:
            if await test_clock.get(cells.control, merchant_id):
                await _wait_for_copy(cells, to_cell, [merchant_id])  # which has the merchant
                await test_clock_cells.catch_up(cells, merchant_id, to_cell)
        await merchant_cells.open_places(cells.control, of_cell)
    await _wait_for_copy(cells, to_cell, merchant_ids)
    for merchant_id in merchant_ids:
        cells.forget_place(merchant_id)


async def _carry(cells: Cells, merchant_id: int) -> str:
    """Carry what former cells owe to the new one; gives why that is left to a worker, if it is."""
    from payintent.operations.carry_balances import carry_to_present  # most commands need no books

    try:
        await carry_to_present(cells, merchant_id)
    except StorageUnavailableError as error:
        _log.warning("books_wait", merchant=merchant_id, why=str(error))
        return str(error)
    return ""


async def _wait_for_copy(cells: Cells, cell: int, merchant_ids: Sequence[int]) -> None:
    """Copy control's tables into a cell until it knows the places of merchants as control does.

    Control is read anew each time: another process may end the move meanwhile.
    """
    if cell == 0:
        return
    database, gives_up_at = cells.at(cell), monotonic() + _COPY_S
    copier, find = CellCopier(cells.control, database), merchant_cells.find_places
    while await find(database, merchant_ids) != await find(cells.control, merchant_ids):
        if monotonic() > gives_up_at:
            raise TimeoutError(f"cell {cell} has not got a copy of it in time")
        await copier.step()
        await asyncio.sleep(_COPY_EVERY_S)


async def _lock_sides(tx: Tx, merchant_id: int) -> tuple[int, int | None]:
    """Lock a merchant's live side, so that its moves come one after the other; gives both sides."""
    merchant = await require_merchant(tx, merchant_id)
    live = merchant.live_merchant or merchant.id
    await merchants.lock(tx, live)
    return live, await merchants.find_test_side(tx, live)


async def _require_open(database: Executor, number: int) -> None:
    """Raise where a cell takes no merchants, or a process that serves has not opened it."""
    state = await cell_records.get_state(database, number)
    if state is None:
        raise RefusedError(ErrorCode.NOT_FOUND, f"no cell {number}")
    if state != "open":
        raise RefusedError(ErrorCode.CONFLICT, f"cell {number} is {state}: it takes no merchants")
    if number and (without := await cell_processes.list_without(database, number)):
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"cell {number} is not open in every process that serves: restart {', '.join(without)}",
        )


async def _require_answer(cells: Cells, number: int) -> None:
    database: Database = cells.at(number)
    try:
        async with asyncio.timeout(_ANSWER_S):
            await cell_records.read_installation(database)
    except (TimeoutError, StorageUnavailableError) as error:
        raise RefusedError(
            ErrorCode.SERVICE_UNAVAILABLE,
            f"cell {number} does not answer: the creates that it let through cannot be waited for",
        ) from error
