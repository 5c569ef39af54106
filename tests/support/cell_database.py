"""The second cell of a run as a database of another server, with the name that control's has."""

import asyncpg

from payintent.operations import copy_tables as copying
from payintent.storage.cells import Cells
from payintent.storage.copied_tables import ChangeNumber
from payintent.storage.migrations_runner import migrate
from tests.support.cell_schema import NUMBER, PLACE, cell_url
from tests.support.cells import copy_tables


async def add_cell_database(url: str) -> None:
    """Make the second cell of a migrated database, before any merchant is there."""
    await migrate(cell_url(url))
    control, cell = await asyncpg.connect(url), await asyncpg.connect(cell_url(url))
    await control.execute(PLACE)
    [row] = await control.fetch("SELECT id FROM installation")
    await cell.execute("INSERT INTO installation (id, cell) VALUES ($1, $2)", row["id"], NUMBER)
    for connection in (control, cell):
        await connection.close()


def copy_at_once() -> None:
    """Let operations copy what they changed, where else they wait for the copier of a process."""

    async def copied(
        cells: Cells, timeout_s: float, since: ChangeNumber | None = None
    ) -> list[int]:
        del timeout_s, since
        await copy_tables(cells)
        return []

    copying.wait_until_copied = copied
