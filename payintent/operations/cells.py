"""Cells: the databases that payments are in, and whether each of them answers."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar

from payintent.domain import ids
from payintent.domain.errors import ErrorCode, RefusedError, StorageUnavailableError
from payintent.operations.base import OperationContext, ReadOperation
from payintent.operations.fields import argument
from payintent.storage import cell_records, server_facts
from payintent.storage.cell_records import CellRecord
from payintent.storage.database import Database

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


class ListCells(ReadOperation[list[CellView]], frozen=True, kw_only=True):
    """List the cells, and whether the database of each answers."""

    action: ClassVar[str] = "cell.list"
    columns = ("number", "state", "added_at", "answers", "why")

    async def read(self, context: OperationContext) -> list[CellView]:
        """Return all cells by their numbers; each is asked for two seconds, all at once."""
        cells = await cell_records.list_cells(context.database)
        return await asyncio.gather(*(_look(context, cell) for cell in cells))


class ShowCell(ReadOperation[CellDetails], frozen=True, kw_only=True):
    """Show a cell: its state, and its database's version, size and clock."""

    action: ClassVar[str] = "cell.show"
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
        return CellDetails(
            number=view.number,
            state=view.state,
            added_at=view.added_at,
            answers=view.answers,
            why=view.why,
            version=facts and facts.version,
            database_bytes=size,
            clock_ahead_ms=facts and round(facts.clock_ahead_s * 1000),
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
