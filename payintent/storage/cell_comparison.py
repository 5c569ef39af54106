"""Whether control knows what cells do: one that was restored may not (decision 127)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from payintent.domain.errors import (
    DatabaseRefusedError,
    LockTimeoutError,
    PermissionDeniedError,
    StorageUnavailableError,
)
from payintent.log import get_logger
from payintent.storage import cell_records, lost_changes
from payintent.storage.database import Database

_EVERY_S = 5.0
_log = get_logger("cells")


class CellComparison:
    """Compares each cell with control once: one that is away, when it is back.

    Cells at addresses that control has no cell for count as well.
    """

    def __init__(
        self,
        control: Database,
        cells: Iterable[Database] = (),
        openers: Iterable[Callable[[], Database]] = (),
    ) -> None:
        """Take the cells that control knows, and what opens an address of no cell."""
        self.failure: DatabaseRefusedError | None = None  # why `run` has ended the process
        self._control = control
        self._left: list[Callable[[], Awaitable[bool]]] = [
            *(partial(self._compare, cell) for cell in cells),
            *(partial(self._compare_unknown, opener) for opener in openers),
        ]

    async def step(self) -> None:
        """Compare what was not compared yet (`DatabaseRefusedError` where a cell knows more)."""
        compared = await asyncio.gather(*(compare() for compare in self._left))
        pairs = zip(self._left, compared, strict=True)
        self._left = [compare for compare, is_done in pairs if not is_done]

    async def run(self, end: Callable[[], None]) -> None:
        """Compare what was away as soon as it is back; where a cell knows more, call `end`."""
        while self._left:
            await asyncio.sleep(_EVERY_S)
            try:
                await self.step()
            except DatabaseRefusedError as error:
                self.failure = error
                end()
                return
            except (LockTimeoutError, PermissionDeniedError) as error:
                _log.warning("cell_not_compared", why=str(error) or type(error).__name__)

    async def _compare(self, cell: Database) -> bool:
        """Tell whether a cell answered; refuse where it knows more of merchants than control."""
        try:
            lost = await lost_changes.find_lost(self._control, cell)
        except StorageUnavailableError:
            return False
        if lost:
            raise _restored(cell, lost_changes.name_some(lost))
        return True

    async def _compare_unknown(self, opener: Callable[[], Database]) -> bool:
        """Tell whether a cell answered; refuse where control does not know it even now."""
        cell = opener()
        try:
            await cell.open()
            number = cell.id_generator.cell
            is_known = number in await cell_records.pick_cells(self._control, [number])
        except StorageUnavailableError:  # it is none, or away
            return False
        finally:
            await cell.close()
        if not is_known:
            raise _restored(cell, "that it is there")
        return True


def _restored(cell: Database, lost: str) -> DatabaseRefusedError:
    number = cell.id_generator.cell
    return DatabaseRefusedError(
        f"cell 0 does not know any more what cell {number} does: {lost}. Was it restored? "
        f"Run payintent cell take-back {number}"
    )
