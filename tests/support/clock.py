"""A clock that stands still until a test moves it: the database's, and that of a process."""

from tests.support.world import World

_START = "2026-11-21 08:00:00+00"


class StoppedClock:
    """Whole milliseconds, as the service's own clock has them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._moved_ms = 0

    async def stop(self) -> "StoppedClock":
        """Let `clock()` read a table from now on."""
        for database in self._world.service.cells:  # which may be schemas of one database
            await database.fetch("CREATE TABLE IF NOT EXISTS public.stopped_clock (at timestamptz)")
            await database.fetch("DELETE FROM public.stopped_clock")
            await database.fetch(f"INSERT INTO public.stopped_clock VALUES ('{_START}')")  # type: ignore[arg-type]
        await self._world.set_clock("(SELECT at FROM public.stopped_clock)")
        return self

    async def move(self, ms: int) -> None:
        self._moved_ms += ms
        at = f"timestamptz '{_START}' + $1 * interval '1 ms'"
        for database in self._world.service.cells:
            await database.fetch(f"UPDATE public.stopped_clock SET at = {at}", self._moved_ms)  # type: ignore[arg-type]

    def monotonic(self) -> float:
        """Tell the seconds since it was stopped."""
        return self._moved_ms / 1000
