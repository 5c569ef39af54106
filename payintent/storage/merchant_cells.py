"""In which cell a merchant has its new payments (table `merchant_cell`)."""

from payintent.storage.database import Executor


async def find(database: Executor, merchant_id: int) -> int:
    """Return the number of a merchant's cell; without a row it is cell 0."""
    row = await database.row(
        "SELECT cell FROM merchant_cell WHERE merchant_id = $1 AND until IS NULL", merchant_id
    )
    return row["cell"] if row else 0
