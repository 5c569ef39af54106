"""Cells: the databases that payments are in, and whether each of them answers."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, ClassVar

from payintent.domain import ids
from payintent.domain.errors import ErrorCode, RefusedError, StorageUnavailableError
from payintent.operations.base import (
    ChangeOperation,
    OperationContext,
    OperationHome,
    ReadOperation,
)
from payintent.operations.fields import argument
from payintent.storage import cell_records, copied_tables, lost_changes, server_facts
from payintent.storage.cell_records import CellRecord
from payintent.storage.database import Database, Tx
from payintent.storage.lost_changes import name_some

_ANSWER_S = 2.0

_Number = Annotated[int, argument("Its number, as `cell list` shows it.", max=ids.CELL_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellView:
    """A cell, and whether its database answers this process."""

    number: int
    state: str
    added_at: datetime
    answers: bool
    why: str  # it does not answer; empty where it does


@dataclass(frozen=True, slots=True, kw_only=True)
class CellDetails:
    """One cell; what its database says of itself is empty where that does not answer."""

    number: int
    state: str
    added_at: datetime
    answers: bool
    why: str
    version: int | None  # of PostgreSQL
    database_bytes: int | None
    clock_ahead_ms: int | None  # of this host's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedCellDetails(CellDetails):
    """A cell beside cell 0, and how far its copies of what is set up are."""

    copied_change: int | None  # by control's number; None: nothing was copied, or no answer
    changes_behind: int | None  # of control's changes; negative: of another history than control's
    copied_at: datetime | None  # when something was copied last


class ListCells(ReadOperation[list[CellView]], frozen=True, kw_only=True):
    """List the cells, and whether the database of each answers."""

    action: ClassVar[str] = "cell.list"
    home: ClassVar[OperationHome] = OperationHome.CELLS
    columns = ("number", "state", "added_at", "answers", "why")

    async def read(self, context: OperationContext) -> list[CellView]:
        """Return all cells by their numbers; each is asked for two seconds, all at once."""
        cells = await cell_records.list_cells(context.database)
        return await asyncio.gather(*(_look(context, cell) for cell in cells))


class ShowCell(ReadOperation[CellDetails], frozen=True, kw_only=True):
    """Show a cell: its state, and its database's version, size and clock."""

    action: ClassVar[str] = "cell.show"
    home: ClassVar[OperationHome] = OperationHome.CELLS
    number: _Number

    async def read(self, context: OperationContext) -> CellDetails:
        """Return what is known of a cell (`NOT_FOUND` where there is none)."""
        cells = await cell_records.list_cells(context.database)
        cell = next((cell for cell in cells if cell.number == self.number), None)
        if cell is None:
            raise RefusedError(ErrorCode.NOT_FOUND, f"no cell {self.number}")
        view = await _look(context, cell)
        database = context.cells.numbered(cell.number)
        facts, size = None, None
        if view.answers and database is not None:
            facts = await server_facts.read_facts(database)
            size = await cell_records.get_size(database)
        details = CellDetails(
            number=view.number,
            state=view.state,
            added_at=view.added_at,
            answers=view.answers,
            why=view.why,
            version=facts and facts.version,
            database_bytes=size,
            clock_ahead_ms=facts and round(facts.clock_ahead_s * 1000),
        )
        if self.number == 0:
            return details
        return await _with_copies(context, details, database if view.answers else None)


@dataclass(frozen=True, slots=True)
class CopiedAnew:
    """The cells whose copies are made anew."""

    cells: list[int]


class CopyAnew(ChangeOperation[CopiedAnew], frozen=True, kw_only=True):
    """Let the copied tables of cells be written anew from cell 0, whatever they have.

    Also where a cell has changes that cell 0 does not know any more, after a restore or a
    failover: those are lost in the cell too. What is to stay is taken back before.
    """

    action: ClassVar[str] = "cell.copy-anew"
    home: ClassVar[OperationHome] = OperationHome.CELLS
    is_destructive: ClassVar[bool] = True
    number: Annotated[
        int | None, argument("Of one cell; left out: of all but cell 0.", max=ids.CELL_MAX)
    ] = None

    async def cells_of(self, context: OperationContext) -> Sequence[int]:
        """Return the cell that is named, or all; cell 0 has nothing to do but to note it."""
        return context.cells.numbers() if self.number is None else [self.number]

    async def changes(self, context: OperationContext) -> list[str]:
        """Describe what is written anew, and what is lost by it."""
        newest, _ = await copied_tables.read_change(context.cells.control)
        whose = "all cells but cell 0" if self.number is None else f"cell {self.number}"
        return [
            f"the copied tables of {whose} become those of change {newest.number} of cell 0",
            "what cell 0 has not is deleted there, such as keys and merchants",
        ]

    async def check(self, context: OperationContext) -> None:
        """Refuse cell 0, which has the tables themselves, and a cell that is none."""
        if self.number == 0:
            raise RefusedError(ErrorCode.BAD_REQUEST, "cell 0 has no copies: it is what is copied")
        if self.number is not None and self.number not in context.cells.numbers():
            raise RefusedError(ErrorCode.NOT_FOUND, f"no cell {self.number}")
        for cell in await self.cells_of(context):
            await _require_nothing_lost(context, cell)

    async def apply(self, context: OperationContext, tx: Tx) -> CopiedAnew:
        """Forget of which change the copies are; an API process writes them within seconds."""
        if context.database is context.cells.control:
            return CopiedAnew([])
        await copied_tables.forget_copy(tx)
        return CopiedAnew([context.id_generator.cell])

    def combine(self, done: CopiedAnew, batch: CopiedAnew) -> CopiedAnew:
        """Name the cells of both."""
        return CopiedAnew([*done.cells, *batch.cells])


async def _require_nothing_lost(context: OperationContext, cell: int) -> None:
    """Refuse to write over what a cell alone knows of merchants that have payments there."""
    control = context.cells.control
    try:
        lost = await lost_changes.find_lost(control, context.cells.at(cell)) if cell else []
    except StorageUnavailableError:  # it gets no copies either
        return
    if lost:
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"cell 0 does not know any more what cell {cell} does: {name_some(lost)}. Run "
            f"payintent cell take-back {cell}",
        )


async def _with_copies(
    context: OperationContext, details: CellDetails, database: Database | None
) -> CopiedCellDetails:
    """Add how far a cell's copies are."""
    copy = await copied_tables.read_copy(database) if database else None
    newest, _ = await copied_tables.read_change(context.cells.control)
    number = copy.change.number if copy and copy.change else None
    return CopiedCellDetails(
        **asdict(details),
        copied_change=number,
        changes_behind=None if number is None else newest.number - number,
        copied_at=copy.copied_at if copy else None,
    )


async def _look(context: OperationContext, cell: CellRecord) -> CellView:
    why = await _absence(context.cells.numbered(cell.number))
    return CellView(
        number=cell.number,
        state=cell.state,
        added_at=cell.added_at,
        answers=not why,
        why=why,
    )


async def _absence(database: Database | None) -> str:
    """Say why a cell's database does not answer; empty where it does."""
    if database is None:
        return "it was added after this process began"
    try:
        async with asyncio.timeout(_ANSWER_S):
            await cell_records.read_installation(database)
    except TimeoutError:
        return "no answer in time"
    except StorageUnavailableError as error:
        return str(error)
    return ""
