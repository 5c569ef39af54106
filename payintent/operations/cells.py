"""Cells: the databases that payments are in, and whether each of them answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from payintent.domain import ids
from payintent.domain.errors import ErrorCode, RefusedError, StorageUnavailableError
from payintent.operations.base import (
    ChangeOperation,
    OperationContext,
    OperationHome,
    ReadOperation,
)
from payintent.operations.cell_views import CellView, read_cell_views
from payintent.operations.fields import argument
from payintent.operations.find_cell import require_cell
from payintent.storage import copied_tables, lost_changes
from payintent.storage.database import Tx
from payintent.storage.lost_changes import name_some

_Number = Annotated[int, argument("Its number, as `cell list` shows it.", max=ids.CELL_MAX)]


class ListCells(ReadOperation[list[CellView]], frozen=True, kw_only=True):
    """List the cells, and whether the database of each answers."""

    action: ClassVar[str] = "cell.list"
    home: ClassVar[OperationHome] = OperationHome.CELLS
    columns = (
        *("number", "state", "answers", "away_since", "address", "merchants", "open_payments"),
        *("database_bytes", "changes_behind", "why"),
    )

    async def read(self, context: OperationContext) -> list[CellView]:
        """Return all cells by their numbers; each is asked for two seconds, all at once."""
        return await read_cell_views(context.cells)


class ShowCell(ReadOperation[CellView], frozen=True, kw_only=True):
    """Show a cell: where it is, how its database does, and how far its copies are."""

    action: ClassVar[str] = "cell.show"
    home: ClassVar[OperationHome] = OperationHome.CELLS
    number: _Number

    async def read(self, context: OperationContext) -> CellView:
        """Return what is known of a cell (`NOT_FOUND` where there is none)."""
        found = await read_cell_views(context.cells, {self.number})
        if not found:
            raise RefusedError(ErrorCode.NOT_FOUND, f"no cell {self.number}")
        return found[0]


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
        require_cell(context.cells, self.number)
        for cell in await self.cells_of(context):
            await _require_nothing_lost(context, cell)

    async def apply(self, context: OperationContext, tx: Tx) -> CopiedAnew:
        """Forget of which change the copies are; an API process writes them within seconds."""
        if context.database is context.cells.control:
            return CopiedAnew([])
        await copied_tables.forget_copy(tx)
        return CopiedAnew([context.database.id_generator.cell])

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
