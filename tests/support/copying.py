"""Two databases of one installation, control and cell 1, and a copier between them."""

import asyncio
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import asyncpg

from payintent.config import Settings
from payintent.id_generator import IdGenerator
from payintent.operations.copy_tables import CellCopier
from payintent.storage.copied_tables import COPIED
from payintent.storage.database import Database
from tests.support.patience import PATIENCE_S

CELL = 1
_WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@dataclass(frozen=True)
class Pair:
    """Control and one other cell."""

    control: Database
    cell: Database
    cell_url: str

    def copier(self) -> CellCopier:
        """Return another copier, as another process would have it."""
        return CellCopier(self.control, self.cell)

    async def close(self) -> None:
        """Close the cell's pool; control's is its maker's."""
        await self.cell.close()


async def make_pair(settings: Settings, control: Database, cell_url: str) -> Pair:
    """Make a migrated database cell 1 of control's installation; nothing is copied yet."""
    cell = Database(
        settings.model_copy(update={"database_url": cell_url}), id_generator=IdGenerator(cell=CELL)
    )
    [here] = await control.fetch("SELECT id, pepper_mark FROM installation")
    await cell.fetch("DELETE FROM installation")
    await cell.fetch(
        "INSERT INTO installation (id, pepper_mark, cell) VALUES ($1, $2, $3)", *here, CELL
    )
    await control.fetch("INSERT INTO cell (number) VALUES ($1)", CELL)
    return Pair(control, cell, cell_url)


async def copied_rows(database: Any) -> dict[str, list[str]]:
    """Read every copied table, without what is not copied."""
    read: dict[str, list[str]] = {}
    for table in COPIED:
        rows = await database.fetch(
            f"SELECT (to_jsonb(t) - 'last_used_at')::text AS row FROM {table} t"
        )
        read[table] = sorted(row["row"] for row in rows)
    return read


async def assert_equal(pair: Pair) -> None:
    """Compare the cell's copies with control's rows."""
    control, cell = await copied_rows(pair.control), await copied_rows(pair.cell)
    for table in COPIED:
        assert cell[table] == control[table], table


async def copied_number(pair: Pair) -> int | None:
    """Read of which change the cell's copies are."""
    [row] = await pair.cell.fetch("SELECT number FROM configuration_copy")
    return row["number"]


async def until_waiting(connection: asyncpg.Connection, count: int = 1) -> None:
    """Wait until so many connections of a database wait for a lock."""
    async with asyncio.timeout(PATIENCE_S):
        while await connection.fetchval(_WAITING) != count:
            await asyncio.sleep(0.01)


async def set_tax_rate(pair: Pair, rate: str) -> None:
    """Change something small in control."""
    await pair.control.fetch(
        """
        INSERT INTO tax_rate VALUES ('TH', $1)
        ON CONFLICT (country) DO UPDATE SET rate = excluded.rate
        """,
        Decimal(rate),
    )


class Held:
    """Keeps rows of a cell locked, as a slow statement there would."""

    def __init__(self, pair: Pair, query: str) -> None:
        self._url, self._query = pair.cell_url, query

    async def __aenter__(self) -> asyncpg.Connection:
        self._connection = await asyncpg.connect(self._url)
        await self._connection.execute(f"BEGIN; {self._query}")
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        await self._connection.execute("COMMIT")
        await self._connection.close()


def held_at_tax_rates(pair: Pair) -> Held:
    """Hold up a copier at its last table."""
    return Held(pair, "SELECT FROM tax_rate FOR UPDATE")


def locked_copies(pair: Pair) -> Held:
    """Have the lock that another copier at it would have."""
    return Held(pair, "SELECT FROM configuration_copy FOR UPDATE")
