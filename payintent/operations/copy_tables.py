"""Keeps the copied tables of each other cell equal to control's (decision 120).

API processes do it: workers may not read merchants' keys, nor write what operators set up.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import LiteralString

from prometheus_client import Gauge

from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.log import get_logger
from payintent.storage import copied_tables, rate_limits
from payintent.storage.cells import Cells
from payintent.storage.copied_tables import COPIED, ROWS_MAX, ChangeNumber, Changes, CopyState
from payintent.storage.database import Database, Tx
from payintent.storage.onchain import refund_logs
from payintent.waiting import wait_until_stopped

_EVERY_S = 1.0
#: Dropped before others are written, to which nothing refers: a merchant has one present place, and
#: where a move that was lost was made again the two have different names.
_PLACES: LiteralString = "merchant_cell"
_STATEMENT_S = 60.0
_LOCK_S = 5.0  # what a payment of the cell holds, it holds for less
_WAIT_EVERY_S = 0.05

LAG = Gauge(
    "payintent_cell_copy_lag_seconds",
    "How long ago a cell's copies were known to be what control has",
    ["cell"],
)
_log = get_logger("copier")


class ForeignHistoryError(Exception):
    """A cell's copies are of a change that control does not know: control is older, or another."""


class CellCopier:
    """Copies what control has changed into one cell; any number of processes may do so at once.

    What a cell has is always what control had at some moment: a pass is one transaction of the
    cell, and reads one snapshot of control.
    """

    def __init__(
        self, control: Database, cell: Database, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Take a clock that only goes on."""
        self._control = control
        self._cell = cell
        self._clock = clock
        self._current_at = clock()
        self._stop = asyncio.Event()
        self._refused: str | None = None
        self._name = str(cell.id_generator.cell)

    async def run(self) -> None:
        """Copy every second until it is stopped or cancelled; half a pass leaves no trace."""
        while not self._stop.is_set():
            try:
                await self.step()
            except (StorageUnavailableError, LockTimeoutError) as error:
                _log.warning("copy_deferred", cell=self._name, why=type(error).__name__)
            except Exception as error:  # noqa: BLE001 - the next pass may come through
                _log.error("copy_failed", cell=self._name, exc_info=error)
            await wait_until_stopped(self._stop, _EVERY_S)

    def stop(self) -> None:
        """Let the pass under way be the last, if it is not cancelled."""
        self._stop.set()

    async def step(self) -> None:
        """Copy what is new; where it is refused the cell is left as it is."""
        began_at = self._clock()
        try:
            if await self._is_current() or await self._copy():
                self._current_at, self._refused = began_at, None
        except ForeignHistoryError as error:
            self._say_refused(str(error))
        finally:
            LAG.labels(self._name).set(self._clock() - self._current_at)

    async def _is_current(self) -> bool:
        copy = await copied_tables.read_copy(self._cell)
        change, migrations = await copied_tables.read_change(self._control)
        return copy.change == change and copy.made_as == _made_as(migrations, copy)

    async def _copy(self) -> bool:
        """Copy in one transaction; False where another copier is at it."""
        async with self._cell.transaction() as cell:
            await cell.allow(statement_s=_STATEMENT_S, lock_s=_LOCK_S)
            # The lock comes before the snapshot: a copier that was slow would bring back old rows.
            copy = await copied_tables.lock_copy(cell)
            if copy is None:
                return False
            async with self._control.transaction() as control:
                await copied_tables.begin_snapshot(control)
                await control.allow(statement_s=_STATEMENT_S, lock_s=_LOCK_S)
                await self._copy_from(control, cell, copy)
        return True

    async def _copy_from(self, control: Tx, cell: Tx, copy: CopyState) -> None:
        change, migrations = await copied_tables.read_change(control)
        made_as = _made_as(migrations, copy)
        changes: Changes = {}
        await copied_tables.begin_copying(cell)
        found = await _find_changes(control, copy, change)
        if found is None or copy.made_as != made_as:
            rows = await _copy_whole(control, cell)
        else:
            changes = found
            rows = await _copy_keys(control, cell, changes)
        await copied_tables.begin_cursors(control, cell)
        # What these changes do in control beside the copied tables they do here.
        await rate_limits.fill_buckets(cell, changes.get("rate_limit", ()))
        if rows["chain"]:
            await refund_logs.reset_dispositions_of_ours(cell)
        await copied_tables.save_copy(cell, change, made_as, written=rows.total() > 0)
        _log.info("tables_copied", cell=self._name, number=change.number, rows=rows.total())

    def _say_refused(self, why: str) -> None:
        if why != self._refused:
            _log.error("copy_refused", cell=self._name, why=why)
        self._refused = why


def open_copiers(cells: Cells) -> list[CellCopier]:
    """Return a copier for each cell but control; none where an installation has one cell."""
    return [CellCopier(cells.control, cell) for cell in cells if cell is not cells.control]


async def wait_until_copied(
    cells: Cells, timeout_s: float, since: ChangeNumber | None = None
) -> list[int]:
    """Wait until all other cells have what control has now; gives those that have not in time.

    Where control is still at the change `since` there is nothing to wait for.
    """
    change, _ = await copied_tables.read_change(cells.control)
    if change == since:
        return []
    others = [database for database in cells if database is not cells.control]
    waits = [
        asyncio.wait_for(_wait(cells.control, database, change.number), timeout_s)
        for database in others
    ]
    results = await asyncio.gather(*waits, return_exceptions=True)
    late: list[int] = []
    for database, result in zip(others, results, strict=True):
        if isinstance(result, TimeoutError | StorageUnavailableError):
            late.append(database.id_generator.cell)
        elif isinstance(result, BaseException):
            raise result
    return late


async def _wait(control: Database, cell: Database, number: int) -> None:
    """Wait for a number of control's own: that of another history is none, however high it is."""
    while True:
        change = (await copied_tables.read_copy(cell)).change
        has_it = change is not None and change.number >= number
        if change and has_it and not await copied_tables.is_foreign(control, change):
            return
        await asyncio.sleep(_WAIT_EVERY_S)


def _made_as(migrations: int, copy: CopyState) -> str:
    """Name the schemas on both sides, and this program's tables: with others, rows differ."""
    return f"{migrations} {copy.migrations} {len(COPIED)}"


async def _find_changes(control: Tx, copy: CopyState, change: ChangeNumber) -> Changes | None:
    """List what changed since a cell's copies were made; None where it needs whole tables."""
    if copy.change is None:
        return None
    if await copied_tables.is_foreign(control, copy.change):
        raise ForeignHistoryError(
            f"the copies are of change {copy.change.number}, which is none of control's; "
            f"its newest is {change.number}"
        )
    is_known = await copied_tables.knows_change(control, copy.change)
    return await copied_tables.list_changes(control, copy.change.number) if is_known else None


async def _copy_whole(control: Tx, cell: Tx) -> Counter[str]:
    """Copy all tables; returns how many rows of each differed."""
    rows, kept = Counter[str](), dict[LiteralString, list[str]]()
    places = [row.key async for page in copied_tables.walk_rows(control, _PLACES) for row in page]
    rows[_PLACES] += await copied_tables.drop_rows(cell, _PLACES, None, places)
    for table in COPIED:
        kept[table] = []
        async for page in copied_tables.walk_rows(control, table):
            rows[table] += await copied_tables.write_rows(cell, table, page)
            kept[table] += [row.key for row in page]
    for table, keys in reversed(kept.items()):
        rows[table] += await copied_tables.drop_rows(cell, table, None, keys)
    return rows


async def _copy_keys(control: Tx, cell: Tx, changes: Changes) -> Counter[str]:
    """Copy the rows of keys that changed; returns how many of each table differed."""
    rows, gone = Counter[str](), list[tuple[LiteralString, Sequence[str], list[str]]]()
    for table in COPIED:
        for keys in _parts(changes.get(table, ())):
            found = await copied_tables.read_rows(control, table, keys)
            if found:
                rows[table] += await copied_tables.write_rows(cell, table, found)
            if len(found) < len(keys):
                gone.append((table, keys, [row.key for row in found]))
    for table, keys, kept in reversed(gone):
        rows[table] += await copied_tables.drop_rows(cell, table, keys, kept)
    return rows


def _parts(keys: Sequence[str]) -> list[Sequence[str]]:
    return [keys[start : start + ROWS_MAX] for start in range(0, len(keys), ROWS_MAX)]
