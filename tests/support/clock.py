"""A clock that stands still until a test moves it: the database's, and that of a process."""

from payintent.storage.database import Database
from tests.support.cell_schema import NUMBER, is_citus
from tests.support.citus_cell import run_on_nodes
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
            await _run(
                database,
                "CREATE TABLE IF NOT EXISTS public.stopped_clock (at timestamptz)",
                "DELETE FROM public.stopped_clock",
                f"INSERT INTO public.stopped_clock VALUES ('{_START}')",
            )
        await self._world.set_clock("(SELECT at FROM public.stopped_clock)")
        return self

    async def move(self, ms: int) -> None:
        self._moved_ms += ms
        at = f"timestamptz '{_START}' + {self._moved_ms} * interval '1 ms'"
        for database in self._world.service.cells:
            await _run(database, f"UPDATE public.stopped_clock SET at = {at}")

    def monotonic(self) -> float:
        """Tell the seconds since it was stopped."""
        return self._moved_ms / 1000


async def _run(database: Database, *statements: str) -> None:
    """Run statements in a database, and on the nodes of a Citus cluster, where `clock()` is too."""
    for statement in statements:
        await database.fetch(statement)  # type: ignore[arg-type]
        if is_citus() and database.id_generator.cell == NUMBER:
            await run_on_nodes(database, statement)
