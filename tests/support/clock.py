"""A stopped clock that only a test advances: the database's clock and a process's clock."""

from tests.support.world import World

_START = "2026-11-21 08:00:00+00"


class StoppedClock:
    """A clock with whole milliseconds, like the service's clock."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._moved_ms = 0

    async def stop(self) -> "StoppedClock":
        """Make `clock()` read a table."""
        await self._world.rows(f"CREATE TABLE stopped_clock AS SELECT timestamptz '{_START}' AS at")
        await self._world.set_clock("(SELECT at FROM stopped_clock)")
        return self

    async def move(self, ms: int) -> None:
        self._moved_ms += ms
        at = f"timestamptz '{_START}' + {self._moved_ms} * interval '1 ms'"
        await self._world.rows(f"UPDATE stopped_clock SET at = {at}")

    def monotonic(self) -> float:
        """Return the seconds since the clock was stopped."""
        return self._moved_ms / 1000
