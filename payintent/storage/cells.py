"""The databases of an installation, and which of them has a row: ids name their cell.

A cell is a database with the payments of some merchants. Cell 0 is the control database as well: it
has what operators set up, and everything whose id names no cell, or one that is not there.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar
from uuid import UUID

from payintent.domain import ids
from payintent.storage.database import Database

T = TypeVar("T")
Other = TypeVar("Other")


class ByCell(Generic[T]):
    """What each cell has one of, such as its database, found by an id."""

    def __init__(self, first: T, others: Mapping[int, T] | None = None) -> None:
        """Take what cell 0 has, and what the others have by their numbers."""
        self._first = first
        self._others = dict(sorted((others or {}).items()))
        for number in self._others:
            if not 1 <= number <= ids.CELL_MAX:
                raise ValueError(f"beside cell 0 are those from 1 to {ids.CELL_MAX}, not {number}")

    def of(self, row_id: UUID) -> T:
        """Return that of the cell that an id by time names: of a payment, refund, case or event."""
        if not self._others:  # most installations have one cell
            return self._first
        return self._others.get(ids.cell_of_timed(row_id), self._first)

    def of_session(self, session_id: UUID) -> T:
        """Return that of the cell that a session's id names, or its name on a chain."""
        if not self._others:
            return self._first
        return self._others.get(ids.cell_of_opaque(session_id), self._first)

    def numbered(self, cell: int) -> T | None:
        """Return that of a cell by its number; None where this process has not opened it."""
        return self._first if cell == 0 else self._others.get(cell)

    def each(self, make: Callable[[T], Other]) -> "ByCell[Other]":
        """Make something for each cell from what it has."""
        others = {number: make(item) for number, item in self._others.items()}
        return ByCell(make(self._first), others)

    def __iter__(self) -> Iterator[T]:
        """Go through all cells, by their numbers."""
        yield self._first
        yield from self._others.values()


class Cells(ByCell[Database]):
    """The database of each cell: where an installation has one, that one."""

    def __init__(self, control: Database, *others: Database) -> None:
        numbers = [database.id_generator.cell for database in (control, *others)]
        if numbers[0] != 0 or len(set(numbers)) < len(numbers):
            raise ValueError(f"cell 0 comes first, and no cell has two databases: {numbers}")
        super().__init__(control, dict(zip(numbers[1:], others, strict=True)))

    @property
    def control(self) -> Database:
        """Return the database of what belongs to no cell, such as merchants and accounts."""
        return self._first

    async def close(self) -> None:
        """Close the pools of all cells."""
        for database in self:
            await database.close()
