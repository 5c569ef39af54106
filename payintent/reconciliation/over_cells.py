"""A gateway's list compared in every cell at once: each line belongs to one of them."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from payintent.domain.errors import ErrorCode, RefusedError, StorageUnavailableError
from payintent.reconciliation.difference_cases import OPENED_MAX
from payintent.storage import cell_records, reconciliation_cells
from payintent.storage.cells import Cells
from payintent.storage.database import Tx
from payintent.storage.reconciliation import ReconciliationScope
from payintent.storage.reconciliation_cells import SharedLine

_ANSWER_S = 2.0


@dataclass(frozen=True, slots=True)
class ComparedCell:
    """A cell and the transaction in which its records are compared."""

    number: int
    tx: Tx


@asynccontextmanager
async def open_compared(cells: Cells, control: Tx) -> AsyncGenerator[list[ComparedCell]]:
    """Open a transaction in each cell beside control's, which goes first and commits last.

    Where the process dies between two commits the comparison is done again, and a case that stands
    in a cell already is not opened twice. Raises `StorageUnavailableError` for a cell that is away.
    """
    async with AsyncExitStack() as stack:
        compared = [ComparedCell(0, control)]
        for number, database in cells.items():
            if number != 0:
                tx = await stack.enter_async_context(database.transaction())
                compared.append(ComparedCell(number, tx))
        yield compared


async def find_away(cells: Cells) -> list[int]:
    """Find the cells beside cell 0 that do not answer: without them nothing can be compared."""
    away: list[int] = []
    for number, database in cells.items():
        if number == 0:
            continue
        try:
            async with asyncio.timeout(_ANSWER_S):
                await cell_records.read_installation(database)
        except (TimeoutError, StorageUnavailableError):
            away.append(number)
    return away


async def part_lines(
    compared: Sequence[ComparedCell], scope: ReconciliationScope
) -> dict[int, list[SharedLine]]:
    """Leave in each cell the lines that are about its records, and in cell 0 what none knows.

    A line that several know is left where its record says the same, else in the first of them.
    Gives, by cell, the lines about its records that another cell keeps.
    """
    control, *others = compared
    for cell in compared:
        await reconciliation_cells.create_table(cell.tx)
        await reconciliation_cells.find_known(cell.tx, cell.number, scope)
    for cell in others:
        async for lines in reconciliation_cells.read_known(cell.tx):
            await reconciliation_cells.add_known(control.tx, lines)
    shared = await _list_shared(control.tx)
    doubled = {
        cell.number: await reconciliation_cells.keep_own(cell.tx, shared[cell.number])
        for cell in others
    }
    doubled[0] = await reconciliation_cells.keep_rest(control.tx, shared[0])
    return doubled


async def _list_shared(control: Tx) -> defaultdict[int, list[int]]:
    shared = defaultdict[int, list[int]](list)
    for number, cell in await reconciliation_cells.list_shared(control, OPENED_MAX + 1):
        shared[cell].append(number)
    if sum(map(len, shared.values())) > OPENED_MAX:
        raise RefusedError(
            ErrorCode.UNPROCESSABLE,
            f"more than {OPENED_MAX} lines are about records of several cells: is a database "
            "the copy of another one? nothing was written",
        )
    return shared
