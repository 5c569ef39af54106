"""What a restore of cell 0 lost of what operators set up, taken back from another cell's copies.

Payments of other cells were not restored. Where cell 0 does not know any more which cells a
merchant is in, keys of creates do not count there, and money is owed twice (decision 127).
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, ClassVar, LiteralString

from payintent.domain import ids
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.operations.base import ChangeOperation, OperationContext
from payintent.operations.cell_changes import check_installation, check_number, opened_cell
from payintent.operations.copy_tables import CellCopier
from payintent.operations.fields import argument
from payintent.storage import cell_records, copied_tables, lost_changes
from payintent.storage.copied_tables import COPIED, CopyState
from payintent.storage.database import Executor, Tx

_STATEMENT_S = 300.0
_LOCK_S = 5.0
#: The tables whose rows operators delete.
_DELETED: tuple[LiteralString, ...] = ("rate_limit", "tax_rate")


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBack:
    """What cell 0 has again."""

    cell: int
    change: int  # of which the copies were
    rows: Mapping[str, int]  # that differed, by table


class TakeBack(ChangeOperation[TakenBack], frozen=True, kw_only=True):
    """Take back from a cell's copies what a restore of cell 0 has lost of what is copied.

    Before anything else is changed, and before an API or a worker starts. Name the cell whose
    copies are newest; all cells get them anew from cell 0 then.
    """

    action: ClassVar[str] = "cell.take-back"
    is_destructive: ClassVar[bool] = True
    number: Annotated[int, argument("The cell's number.", min=1, max=ids.CELL_MAX)]

    async def changes(self, context: OperationContext) -> list[str]:
        """Describe what cell 0 becomes."""
        async with opened_cell(context, self.number) as cell:
            copy = await _require_lost(context.cells.control, cell)
        newest, _ = await copied_tables.read_change(context.cells.control)
        assert copy.change is not None  # noqa: S101 - it was lost
        of_cell = f"what cell {self.number} has of change {copy.change.number}"
        return [f"what is set up in cell 0, at change {newest.number}, becomes {of_cell}"]

    async def check(self, context: OperationContext) -> None:
        """Refuse copies of a change that cell 0 knows, and a cell 0 that was changed since."""
        check_number(self.number)
        control = context.cells.control
        async with opened_cell(context, self.number) as cell:
            if not await check_installation(control, cell, self.number):
                raise RefusedError(ErrorCode.CONFLICT, f"its database is not cell {self.number}")
            if await cell_records.list_migrations(control) != await cell_records.list_migrations(
                cell
            ):
                raise RefusedError(
                    ErrorCode.CONFLICT,
                    f"cell {self.number} has another schema than cell 0: run payintent migrate",
                )
            copy = await _require_lost(control, cell)
        await _require_newest(context, self.number, copy)

    async def apply(self, context: OperationContext, tx: Tx) -> TakenBack:
        """Write what differs into cell 0, as one change of its own."""
        async with opened_cell(context, self.number) as cell, cell.transaction() as copies:
            await copied_tables.begin_snapshot(copies)
            for side in (copies, tx):
                await side.allow(statement_s=_STATEMENT_S, lock_s=_LOCK_S)
            copy = await _require_lost(tx, copies)
            rows = await _take_back(copies, tx)
        assert copy.change is not None  # noqa: S101 - it was lost
        return TakenBack(cell=self.number, change=copy.change.number, rows=rows)

    async def finish(self, context: OperationContext, result: TakenBack) -> None:
        """Let the copies of all cells be of cell 0's history again."""
        del result
        control = context.cells.control
        for record in await cell_records.list_cells(control):
            if record.number == 0:
                continue
            try:
                async with opened_cell(context, record.number) as cell:
                    async with cell.transaction() as tx:
                        await copied_tables.forget_copy(tx)
                    await CellCopier(control, cell).step()
            except RefusedError as error:
                context.warn(f"{error}: run payintent cell copy-anew {record.number} later")


async def _require_lost(control: Executor, cell: Executor) -> CopyState:
    """Return of which change a cell's copies are: one that was lost, and nothing came after it."""
    copy = await copied_tables.read_copy(cell)
    if copy.change is None or not await copied_tables.is_foreign(control, copy.change):
        raise RefusedError(
            ErrorCode.CONFLICT, "its copies are of a change that cell 0 has: nothing was lost"
        )
    assert copy.copied_at is not None  # noqa: S101 - it is written with the change
    if await lost_changes.was_changed_since(control, copy.copied_at):
        raise RefusedError(
            ErrorCode.CONFLICT,
            "cell 0 was changed after these copies were made: that would be lost. Restore it again,"
            " and take back before anything else",
        )
    return copy


async def _require_newest(context: OperationContext, number: int, copy: CopyState) -> None:
    """Refuse where another cell has copies of a later change, known to cell 0 or not."""
    control = context.cells.control
    for other in sorted(control.settings.other_cells.keys() - {number}):
        change = None
        with suppress(RefusedError):  # it is away, or another's
            async with opened_cell(context, other) as cell:
                if await check_installation(control, cell, other):
                    change = (await copied_tables.read_copy(cell)).change
        if change and copy.change and change.number > copy.change.number:
            raise RefusedError(
                ErrorCode.CONFLICT, f"the copies of cell {other} are newer: take back from there"
            )


async def _take_back(copies: Tx, control: Tx) -> Mapping[str, int]:
    """Write what differs, in the order of what refers to what; returns how many rows that were."""
    await lost_changes.begin_taking_back(control)
    rows, kept = Counter[str](), dict[LiteralString, list[str]]()
    for table in COPIED:
        async for page in copied_tables.walk_rows(copies, table):
            rows[table] += await copied_tables.write_rows(control, table, page)
            kept.setdefault(table, []).extend(row.key for row in page)
    for table in _DELETED:
        rows[table] += await copied_tables.drop_rows(control, table, None, kept.get(table, []))
    await lost_changes.pass_taken_numbers(control)
    return {table: count for table, count in rows.items() if count}
