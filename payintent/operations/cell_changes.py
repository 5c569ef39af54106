"""Cells that are added, take no merchants any more, and are closed."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from time import monotonic
from typing import Annotated, ClassVar

from payintent.domain import ids
from payintent.domain.errors import (
    DatabaseRefusedError,
    ErrorCode,
    LockTimeoutError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.id_generator import IdGenerator
from payintent.operations.base import ChangeOperation, OperationContext
from payintent.operations.copy_tables import CellCopier
from payintent.operations.fields import argument, option
from payintent.storage import cell_records, copied_tables, server_facts
from payintent.storage.cell_records import CellRecord
from payintent.storage.database import Database, Tx

CLOCK_APART_MAX = timedelta(seconds=1)
_COPY_S = 300.0
_COUNT_S = 300.0  # a full cell is read through
_COPY_EVERY_S = 0.1
_RIGHTS_SHOWN_MAX = 5

_Number = Annotated[int, argument("The cell's number.", min=1, max=ids.CELL_MAX)]


class AddCell(ChangeOperation[CellRecord], frozen=True, kw_only=True):
    """Add an empty, migrated database as a cell; run it again where it broke off.

    Its address is in the PAYINTENT_CELLS of this process, and has to be in that of all others
    first. They open it when they start next.
    """

    action: ClassVar[str] = "cell.add"
    number: _Number

    async def check(self, context: OperationContext) -> None:
        """Refuse a database that cannot be this cell."""
        check_number(self.number)
        async with opened_cell(context, self.number) as cell:
            await _check_database(context.cells.control, cell, self.number)

    async def apply(self, context: OperationContext, tx: Tx) -> CellRecord:
        """Note the cell, so that what changes from now on is copied; nobody is placed there."""
        del context
        await cell_records.add(tx, self.number)
        return await cell_records.change_state(tx, self.number, "adding", "adding")

    async def finish(self, context: OperationContext, result: CellRecord) -> None:
        """Say in the database which cell it is, copy what is set up, and open the cell."""
        del result
        control = context.cells.control
        async with opened_cell(context, self.number) as cell:
            await cell_records.claim(cell, self.number, control)
            await check_installation(control, cell, self.number)
            await _copy(control, cell)
            await cell_records.change_state(control, self.number, "adding", "open")
            await _copy(control, cell)


class DrainCell(ChangeOperation[CellRecord], frozen=True, kw_only=True):
    """Let a cell take no more merchants; those that are there create on, until they are moved."""

    action: ClassVar[str] = "cell.drain"
    number: _Number
    undo: Annotated[bool, option("Let it take merchants again.")] = False

    async def check(self, context: OperationContext) -> None:
        """Refuse cell 0: merchants who were never moved are there."""
        del context
        check_number(self.number)

    async def apply(self, context: OperationContext, tx: Tx) -> CellRecord:
        """Let no merchant into the cell any more, or let merchants in again."""
        del context
        before, after = ("draining", "open") if self.undo else ("open", "draining")
        return await cell_records.change_state(tx, self.number, before, after)


class CloseCell(ChangeOperation[CellRecord], frozen=True, kw_only=True):
    """Close a drained cell in which nothing is unended; what is there can be read on."""

    action: ClassVar[str] = "cell.close"
    is_destructive: ClassVar[bool] = True
    number: _Number

    async def check(self, context: OperationContext) -> None:
        """Refuse a cell that has merchants, or anything that has not ended."""
        check_number(self.number)
        state = await cell_records.get_state(context.database, self.number)
        if state is None:
            raise RefusedError(ErrorCode.NOT_FOUND, f"no cell {self.number}")
        if state not in ("draining", "closed"):
            raise RefusedError(
                ErrorCode.CONFLICT, f"cell {self.number} is {state}: first run cell drain"
            )
        if merchants := await cell_records.count_merchants(context.database, self.number):
            raise RefusedError(
                ErrorCode.CONFLICT, f"{merchants} merchants are in cell {self.number}: move them"
            )
        async with opened_cell(context, self.number) as database, database.transaction() as cell:
            await cell.allow(statement_s=_COUNT_S, lock_s=1)
            unended = await cell_records.list_unended(cell)
        if unended:
            listed = ", ".join(f"{count} {name}" for name, count in unended.items())
            raise RefusedError(
                ErrorCode.CONFLICT,
                f"in cell {self.number} is unended: {listed}".replace("_", " "),
            )

    async def apply(self, context: OperationContext, tx: Tx) -> CellRecord:
        """Close it; once it is draining no merchant comes any more."""
        del context
        record = await cell_records.change_state(tx, self.number, "draining", "closed")
        if await cell_records.count_merchants(tx, self.number):
            raise RefusedError(ErrorCode.CONFLICT, f"a merchant came into cell {self.number}")
        return record


def check_number(number: int) -> None:
    """Refuse what is no number of a cell beside cell 0."""
    if number == 0:
        raise RefusedError(
            ErrorCode.BAD_REQUEST, "cell 0 has what operators set up: it is always open"
        )
    if not 1 <= number <= ids.CELL_MAX:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"a cell is from 1 to {ids.CELL_MAX}")


@asynccontextmanager
async def opened_cell(context: OperationContext, number: int) -> AsyncGenerator[Database]:
    """Open a cell's database, which this process may not have opened when it began."""
    settings = context.cells.control.settings.other_cells.get(number)
    if settings is None:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"PAYINTENT_CELLS of this process does not say where cell {number} is",
        )
    cell = Database(settings, "payintent-add", id_generator=IdGenerator(cell=number))
    try:
        await cell.open()
        yield cell
    except (DatabaseRefusedError, StorageUnavailableError, LockTimeoutError) as error:
        raise RefusedError(
            ErrorCode.SERVICE_UNAVAILABLE, f"cell {number}: {error or type(error).__name__}"
        ) from error
    finally:
        await cell.close()


async def _check_database(control: Database, cell: Database, number: int) -> None:
    apart = await cell_records.list_migrations(control) ^ await cell_records.list_migrations(cell)
    if apart:
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"cell {number} has another schema than cell 0: run payintent migrate",
        )
    is_ours = await check_installation(control, cell, number)
    change = (await copied_tables.read_copy(cell)).change
    if change is not None and await copied_tables.is_foreign(control, change):
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"cell {number} has copies of a change that cell 0 does not know, which was restored: "
            f"run payintent cell take-back {number}",
        )
    if not is_ours and await cell_records.has_rows(cell):
        raise RefusedError(ErrorCode.CONFLICT, f"the database of cell {number} is not empty")
    if lacking := sorted(
        await cell_records.list_rights(control) - await cell_records.list_rights(cell)
    ):
        listed = ", ".join(lacking[:_RIGHTS_SHOWN_MAX])
        raise RefusedError(
            ErrorCode.CONFLICT, f"in cell {number} this process may not: {listed}: run the grants"
        )
    await _check_clocks(control, cell, number)


async def check_installation(control: Database, cell: Database, number: int) -> bool:
    """Tell whether a database is this cell already; refuse one that is another."""
    ours = await cell_records.read_installation(control)
    found = await cell_records.find_installation(cell)
    if found is not None and found.id != ours.id:
        raise RefusedError(
            ErrorCode.CONFLICT, f"cell {number}: its database is another installation's"
        )
    if found is not None and found.cell != number:
        raise RefusedError(ErrorCode.CONFLICT, f"its database is that of cell {found.cell}")
    return found is not None


async def find_forgotten_cells(context: OperationContext) -> list[int]:
    """List cells of this installation that control does not know any more, after a restore."""
    control = context.cells.control
    listed = {cell.number for cell in await cell_records.list_cells(control)}
    forgotten: list[int] = []
    for number in sorted(control.settings.other_cells.keys() - listed):
        with suppress(RefusedError):  # it is away, or another's
            async with opened_cell(context, number) as cell:
                if await check_installation(control, cell, number):
                    forgotten.append(number)
    return forgotten


async def _check_clocks(control: Database, cell: Database, number: int) -> None:
    of_control, of_cell = (
        await server_facts.read_facts(control),
        await server_facts.read_facts(cell),
    )
    apart_s = abs(of_control.clock_ahead_s - of_cell.clock_ahead_s)
    if apart_s > CLOCK_APART_MAX.total_seconds():
        raise RefusedError(
            ErrorCode.CONFLICT, f"the clock of cell {number} is {apart_s:.1f} s from that of cell 0"
        )


async def _copy(control: Database, cell: Database) -> None:
    """Copy until the cell has what control has now."""
    change, _ = await copied_tables.read_change(control)
    copier, gives_up_at = CellCopier(control, cell), monotonic() + _COPY_S
    while True:
        await copier.step()
        copy = await copied_tables.read_copy(cell)
        if copy.change is not None and copy.change.number >= change.number:
            return
        if monotonic() > gives_up_at:
            raise StorageUnavailableError("nothing was copied in time; run it again")
        await asyncio.sleep(_COPY_EVERY_S)
