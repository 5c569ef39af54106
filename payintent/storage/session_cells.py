"""Which database has a session: its id names the cell, but one in 268 million from before."""

from uuid import UUID

from payintent.storage import sessions
from payintent.storage.cells import Cells
from payintent.storage.database import Database


async def find_session_cell(cells: Cells, session_id: UUID) -> Database:
    """Return the database that has a session; where none has it, the one that its id names.

    An id from before cells may name one by chance: such a session is in cell 0. With one cell
    nothing is asked.
    """
    named = cells.of_session(session_id)
    if named is cells.control or await sessions.is_known(named, session_id):
        return named
    return cells.control if await sessions.is_known(cells.control, session_id) else named
