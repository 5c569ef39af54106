"""Which processes serve, and which cells each of them has opened (table `cell_process`)."""

from collections.abc import Sequence
from uuid import UUID

from payintent.storage.database import Executor

#: A process notes itself every few seconds; one not seen for 30 s has ended.
EVERY_S = 5.0


async def note(control: Executor, process_id: UUID, name: str, cells: Sequence[int]) -> list[int]:
    """Note that a process serves with some cells open; gives those that it lacks."""
    rows = await control.fetch(
        """
        WITH noted AS (
            INSERT INTO cell_process (id, name, cells)
            VALUES ($1, $2, $3::smallint[])
            ON CONFLICT (id) DO UPDATE
            SET seen_at = clock(), cells = excluded.cells
        )
        SELECT number
        FROM cell
        WHERE number <> 0 AND number <> ALL($3::smallint[])
        ORDER BY number
        LIMIT 1024
        """,
        process_id,
        name,
        list(cells),
    )
    return [row["number"] for row in rows]


async def forget(control: Executor, process_id: UUID) -> None:
    """Forget a process that ends, and those that ended long ago without saying so."""
    await control.fetch(
        "DELETE FROM cell_process WHERE id = $1 OR seen_at < clock() - interval '1 day'",
        process_id,
    )


async def list_without(control: Executor, cell: int) -> list[str]:
    """List the processes that serve and have not opened a cell, by their names."""
    rows = await control.fetch(
        """
        SELECT name
        FROM cell_process
        WHERE seen_at > clock() - interval '30 seconds' AND $1::smallint <> ALL (cells)
        ORDER BY name
        LIMIT 100
        """,
        cell,
    )
    return [row["name"] for row in rows]
