"""The cells that an installation has, as the control database knows them, and which one this is."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.storage.connect_errors import RefusedConnectionError
from payintent.storage.database import Executor
from payintent.storage.driver import NO_PERMISSION, OLD_SCHEMA, Connection

_CELLS_MAX = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRecord:
    """A cell: `open` for new payments, `draining` without them, or `closed`."""

    number: int
    state: str
    added_at: datetime


@dataclass(frozen=True, slots=True)
class Installation:
    """Which cell a database is, and of which installation."""

    cell: int
    id: UUID


async def read_installation(database: Executor) -> Installation:
    """Read which cell a database is; its first opening has said so."""
    row = await database.row("SELECT cell, id FROM installation LIMIT 1")
    assert row is not None  # noqa: S101 - written with the fingerprint of the pepper
    return Installation(row["cell"], row["id"])


async def list_cells(database: Executor) -> list[CellRecord]:
    """List the cells of the installation by their numbers."""
    rows = await database.fetch(
        "SELECT number, state, added_at FROM cell ORDER BY number LIMIT $1", _CELLS_MAX
    )
    return [CellRecord(**row) for row in rows]


async def get_size(database: Executor) -> int:
    """Return how many bytes a cell's database takes up on its disk."""
    row = await database.row("SELECT pg_database_size(current_database()) AS bytes")
    assert row is not None  # noqa: S101 - the statement always returns one row
    return row["bytes"]


def proving_cell(number: int, installation_id: UUID) -> Callable[[Connection], Awaitable[None]]:
    """Make a check of new connections: a wrong address must not get another cell's payments."""

    async def prove(connection: Connection) -> None:
        try:
            row = await connection.fetchrow("SELECT cell, id FROM installation LIMIT 1")
        except OLD_SCHEMA as error:
            raise ConnectionError("the schema is missing or old; run payintent migrate") from error
        except NO_PERMISSION as error:
            raise RefusedConnectionError(str(error).partition("\n")[0]) from error
        if row is None or row["id"] != installation_id:
            raise RefusedConnectionError("its database is of another installation, or of none yet")
        if row["cell"] != number:
            raise RefusedConnectionError(f"its database is that of cell {row['cell']}")

    return prove
