"""Which database has a session: its id names the cell, but one in 268 million from before."""

from collections.abc import Awaitable, Callable
from functools import partial
from uuid import UUID

from payintent.storage import sessions
from payintent.storage.batcher import Batcher
from payintent.storage.cells import Cells
from payintent.storage.database import Database


async def find_session_cell(cells: Cells, session_id: UUID) -> Database:
    """Return the database that has a session; where none has it, the one that its id names.

    An id from before cells may name one by chance: such a session is in cell 0. With one cell
    nothing is asked.
    """
    return await _find(cells, session_id, lambda database: sessions.is_known(database, session_id))


class SessionCells:
    """Finds the cells of many sessions: those that are asked for together share statements."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._finders = cells.each(
            lambda database: Batcher(
                alone=partial(sessions.is_known, database),
                together=partial(sessions.are_known, database),
                gate=database.gate,
            )
        )

    async def find(self, session_id: UUID) -> Database:
        """Return the database that has a session, as `find_session_cell` does."""
        return await _find(
            self._cells,
            session_id,
            lambda database: self._finders.at(database.id_generator.cell).run(session_id),
        )

    async def close(self) -> None:
        """Wait for the look-ups whose callers have gone."""
        for finder in self._finders:
            await finder.close()


async def _find(
    cells: Cells, session_id: UUID, is_known: Callable[[Database], Awaitable[bool]]
) -> Database:
    named = cells.of_session(session_id)
    if named is cells.control or await is_known(named):
        return named
    return cells.control if await is_known(cells.control) else named
