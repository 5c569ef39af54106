"""The databases of an installation, and which of them has a row: ids name their cell.

A cell is a database with the payments of some merchants. Cell 0 is the control database as well: it
has what operators set up, and everything whose id names no cell, or one that is not there.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar
from uuid import UUID

from payintent.domain import ids
from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.storage import copied_tables, merchant_cells
from payintent.storage.batcher import Batcher
from payintent.storage.cell_comparison import CellComparison
from payintent.storage.database import Database
from payintent.storage.merchant_cells import MerchantPlace
from payintent.ttl_cache import TtlCache, TtlMap

T = TypeVar("T")
Other = TypeVar("Other")

_MERCHANTS_MAX = 100_000
_ONLY_PLACE = MerchantPlace(cell=0)
_CONTROL_RESTS_S = 5.0  # after it did not answer
_CONTROL_ANSWERS_S = 2.0  # else a copy is read: its silence must not hold another cell's request
_COPY_ANSWERS_S = 0.5  # of which change it is; the same


class ByCell(Generic[T]):
    """What each cell has one of, such as its database, found by an id."""

    def __init__(self, first: T, others: Mapping[int, T] | None = None) -> None:
        """Take what cell 0 has, and what the others have by their numbers."""
        self._first = first
        self._others = dict(sorted((others or {}).items()))
        for number in self._others:
            if not 1 <= number <= ids.CELL_MAX:
                raise ValueError(f"beside cell 0 are those from 1 to {ids.CELL_MAX}, not {number}")

    @property
    def are_several(self) -> bool:
        """Tell whether there is a cell beside cell 0; most installations have none."""
        return bool(self._others)

    def of(self, row_id: UUID) -> T:
        """Return that of the cell that an id by time names: of a payment, refund, case or event."""
        if not self._others:
            return self._first
        return self._others.get(ids.cell_of_timed(row_id), self._first)

    def number_of(self, row_id: UUID) -> int:
        """Return the number of the cell that `of` finds by an id."""
        cell = ids.cell_of_timed(row_id) if self._others else 0
        return cell if cell in self._others else 0

    def of_session(self, session_id: UUID) -> T:
        """Return that of the cell that a session's id names, or its name on a chain."""
        if not self._others:
            return self._first
        return self._others.get(ids.cell_of_opaque(session_id), self._first)

    def numbered(self, cell: int) -> T | None:
        """Return that of a cell by its number; None where this process has not opened it."""
        return self._first if cell == 0 else self._others.get(cell)

    def at(self, cell: int) -> T:
        """Return that of a cell by its number (`StorageUnavailableError` where it is not open)."""
        found = self.numbered(cell)
        if found is None:
            raise StorageUnavailableError(f"cell {cell} was added after this process began")
        return found

    def each(self, make: Callable[[T], Other]) -> "ByCell[Other]":
        """Make something for each cell from what it has."""
        others = {number: make(item) for number, item in self._others.items()}
        return ByCell(make(self._first), others)

    def numbers(self) -> list[int]:
        """List the numbers of all cells."""
        return [0, *self._others]

    def items(self) -> Iterator[tuple[int, T]]:
        """Go through all cells with their numbers."""
        yield 0, self._first
        yield from self._others.items()

    def __iter__(self) -> Iterator[T]:
        """Go through all cells, by their numbers."""
        yield self._first
        yield from self._others.values()


class Cells(ByCell[Database]):
    """The database of each cell: where an installation has one, that one."""

    def __init__(
        self,
        control: Database,
        *others: Database,
        kept_s: float = 1.0,
        comparison: CellComparison | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the databases; where merchants are is known for `kept_s` seconds."""
        numbers = [database.id_generator.cell for database in (control, *others)]
        if numbers[0] != 0 or len(set(numbers)) < len(numbers):
            raise ValueError(f"cell 0 comes first, and no cell has two databases: {numbers}")
        super().__init__(control, dict(zip(numbers[1:], others, strict=True)))
        #: Of cells that were away when this process began, where it is one that serves.
        self.comparison = comparison or CellComparison(control)
        self._monotonic = monotonic
        self._places: TtlMap[int, MerchantPlace] = TtlMap(kept_s, _MERCHANTS_MAX, monotonic)
        self._finder: Batcher[int, MerchantPlace] = Batcher(self._find_place, self._find_places)
        self._control_rests_until = 0.0
        self._newest = TtlCache[Sequence[Database]](
            self._order_copies, (), _CONTROL_RESTS_S, monotonic
        )

    @property
    def control(self) -> Database:
        """Return the database of what belongs to no cell, such as merchants and accounts."""
        return self._first

    async def number_of_merchant(self, merchant_id: int) -> int:
        """Return the number of the cell in which a merchant has its new payments."""
        return (await self.place_of_merchant(merchant_id)).cell

    async def numbers_of_merchant(self, merchant_id: int) -> tuple[int, ...]:
        """Return the numbers of all cells with payments of a merchant, the present one first."""
        place = await self.place_of_merchant(merchant_id)
        return (place.cell, *place.others)

    async def place_of_merchant(self, merchant_id: int) -> MerchantPlace:
        """Return where a merchant has its new payments, as it was known up to `kept_s` ago.

        Many merchants share a statement. What is written there has to be refused by the cell itself
        where the merchant was moved meanwhile (`merchant_cells.takes_creates`).
        """
        if not self._others:
            return _ONLY_PLACE
        place = self._places.get(merchant_id)
        if place is None:
            place = await self._finder.run(merchant_id)
            self._places.set(merchant_id, place)
        return place

    def forget_place(self, merchant_id: int) -> None:
        """Have a merchant's place read again: its cell refused what was to be written there."""
        self._places.remove(merchant_id)

    async def _find_place(self, merchant_id: int) -> MerchantPlace:
        [place] = await self._find_places([merchant_id])
        return place

    async def _find_places(self, merchant_ids: Sequence[int]) -> list[MerchantPlace]:
        return await self.read_copy(lambda copy: merchant_cells.find_places(copy, merchant_ids))

    async def of_merchant(self, merchant_id: int) -> Database:
        """Return the database in which a merchant has its new payments."""
        return self.at(await self.number_of_merchant(merchant_id))

    async def all_of_merchant(self, merchant_id: int) -> dict[int, Database]:
        """Return the databases that have payments of a merchant, by their cells' numbers."""
        return {cell: self.at(cell) for cell in await self.numbers_of_merchant(merchant_id)}

    async def numbers_with_money(self, merchant_id: int) -> tuple[int, ...]:
        """Return the numbers of all cells with money of a merchant, the present one first."""
        return (await self.place_of_merchant(merchant_id)).with_money

    async def all_with_money(self, merchant_id: int) -> dict[int, Database]:
        """Return the databases that have money of a merchant, by their cells' numbers."""
        return {cell: self.at(cell) for cell in await self.numbers_with_money(merchant_id)}

    async def read_copy(self, read: Callable[[Database], Awaitable[Other]]) -> Other:
        """Read what every cell has a copy of: of control, else of the cell with the newest copy.

        Control that did not answer is not asked for some seconds, so that nobody waits for it.
        """
        if not self._others:
            return await read(self._first)
        if self._monotonic() >= self._control_rests_until and not _is_silent(self._first):
            try:
                async with asyncio.timeout(_CONTROL_ANSWERS_S):
                    return await read(self._first)
            except (StorageUnavailableError, TimeoutError):
                self._control_rests_until = self._monotonic() + _CONTROL_RESTS_S
        copies = await self._newest.get()
        for database in copies:
            try:
                async with asyncio.timeout(None if database is copies[-1] else _CONTROL_ANSWERS_S):
                    return await read(database)
            except (StorageUnavailableError, TimeoutError):
                self._newest.invalidate()
        return await read(self._first)

    async def _order_copies(self, before: Sequence[Database]) -> Sequence[Database]:
        """Return the other cells that answer, that with the newest copy first.

        An older one may not know of the last moves. Where a merchant was moved to and from knows of
        its move, so one of those that answer does, or the merchant's cells do not all answer.
        """
        del before
        others = list(self._others.values())
        if len(others) == 1:
            return others
        found = await asyncio.gather(*(_number_of_copy(database) for database in others))
        answers = [pair for pair in zip(found, others, strict=True) if pair[0] is not None]
        return [database for _, database in sorted(answers, key=_by_number, reverse=True)]

    async def close(self) -> None:
        """Close the pools of all cells."""
        await self._finder.close()
        for database in self:
            await database.close()


def _is_silent(database: Database) -> bool:
    return database.gate is not None and database.gate.is_silent


async def _number_of_copy(database: Database) -> int | None:
    """Return of which change of control a cell's copies are; None where it does not say at once."""
    if _is_silent(database):
        return None
    try:
        async with asyncio.timeout(_COPY_ANSWERS_S):
            copy = await copied_tables.read_copy(database)
    except (StorageUnavailableError, LockTimeoutError, TimeoutError):
        return None
    return copy.change.number if copy.change else 0


def _by_number(pair: tuple[int | None, Database]) -> int:
    return pair[0] or 0
