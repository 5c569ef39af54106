"""In which cells a merchant has its payments (table `merchant_cell`)."""

from payintent.storage.database import Executor


async def list_all(database: Executor, merchant_id: int) -> tuple[int, ...]:
    """Return the numbers of a merchant's cells: the present one, then former ones, last left first.

    Without a row it is cell 0. Who moves a merchant away from there writes a row of cell 0 too.
    """
    rows = await database.fetch(
        """
        SELECT cell
        FROM merchant_cell
        WHERE merchant_id = $1
        GROUP BY cell
        ORDER BY bool_or(until IS NULL) DESC, max(since) DESC
        """,
        merchant_id,
    )
    return tuple(row["cell"] for row in rows) or (0,)
