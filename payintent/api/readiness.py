"""Whether this process is ready; each cell's database is queried once a second at most."""

import asyncio
import time
from dataclasses import dataclass

from payintent.config import Settings
from payintent.domain.errors import PermissionDeniedError, StorageUnavailableError
from payintent.storage import migrations_runner
from payintent.storage.cells import Cells
from payintent.ttl_cache import TtlCache

_OTHERS_S = 0.5  # after a cell is ready the others have so long: a silent one keeps nobody waiting
_SILENT = "no answer in time"


@dataclass(frozen=True, slots=True)
class ReadyState:
    """Why a process is not ready: empty where it is, and then which cells are not all the same."""

    why_not: str = ""
    cells_away: tuple[int, ...] = ()


_STOPPING = ReadyState("the process is about to end")


class Readiness:
    """Caches whether the process is ready; concurrent callers share one look.

    It is while any of its cells answers and has every migration: one that is away, or was not
    migrated, stops payments of its own merchants alone.
    """

    def __init__(self, cells: Cells, settings: Settings) -> None:
        self.is_stopping = False
        self._urls = cells.each(lambda database: database.settings.direct_url)
        self._looks: dict[int, asyncio.Task[str]] = {}  # that have not ended, by cell
        self._state: TtlCache[ReadyState] = TtlCache(
            self._look, ReadyState(), settings.readiness_cache_s, time.monotonic
        )

    async def state(self) -> ReadyState:
        """Return why the process is not ready, or which cells are away."""
        return _STOPPING if self.is_stopping else await self._state.get()

    async def close(self) -> None:
        """End what still waits for the answer of a silent cell."""
        for look in self._looks.values():
            look.cancel()
        await asyncio.gather(*self._looks.values(), return_exceptions=True)

    async def _look(self, _: ReadyState) -> ReadyState:
        if not self._urls.are_several:
            return ReadyState(await _why_not(self._urls.at(0)))
        reasons = await self._ask_cells()
        if all(reasons.values()):
            return ReadyState("; ".join(f"cell {cell}: {why}" for cell, why in reasons.items()))
        return ReadyState(cells_away=tuple(cell for cell, why in reasons.items() if why))

    async def _ask_cells(self) -> dict[int, str]:
        """Return for each cell why it is not ready, empty where it is.

        All are asked at once. Once one is ready the others are waited for a moment, but for those
        that have been silent since an earlier look.
        """
        self._looks = {cell: look for cell, look in self._looks.items() if not look.done()}
        silent = set(self._looks)
        for cell, url in self._urls.items():
            if cell not in silent:
                self._looks[cell] = asyncio.create_task(_why_cell_is_not(url))
        reasons: dict[int, str] = {}
        ends_at: float | None = None
        while waited := self._looks.keys() - (silent if ends_at is not None else set()):
            left_s = None if ends_at is None else max(0.0, ends_at - time.monotonic())
            looks = [self._looks[cell] for cell in waited]
            done, _ = await asyncio.wait(looks, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            for cell in [cell for cell in waited if self._looks[cell] in done]:
                reasons[cell] = self._looks.pop(cell).result()
            if ends_at is None and not all(reasons.values()):
                ends_at = time.monotonic() + _OTHERS_S
        return {cell: reasons.get(cell, _SILENT) for cell in self._urls.numbers()}


async def _why_not(url: str) -> str:
    try:
        missing = await migrations_runner.pending(url)
    except StorageUnavailableError:
        return "the database is away"
    return f"{len(missing)} migrations are missing" if missing else ""


async def _why_cell_is_not(url: str) -> str:
    """Say why one of several cells is not ready: what it refuses keeps no other from being so."""
    try:
        return await _why_not(url)
    except PermissionDeniedError as error:
        return str(error)
