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
        await self._world.rows(f"CREATE TABLE stopped_clock AS SELECT timestamptz '{_START}' AS at")
        await self._world.set_clock("(SELECT at FROM stopped_clock)")
        return self

    async def move(self, ms: int) -> None:
        self._moved_ms += ms
        at = f"timestamptz '{_START}' + {self._moved_ms} * interval '1 ms'"
        await self._world.rows(f"UPDATE stopped_clock SET at = {at}")

    def monotonic(self) -> float:
        """Tell the seconds since it was stopped."""
        return self._moved_ms / 1000
