"""In which cell an operation is done: where the row is that it names, or its merchant."""

from uuid import UUID

from payintent.domain import ids
from payintent.domain.errors import ErrorCode, RefusedError, StorageUnavailableError
from payintent.operations.validation import is_database_id
from payintent.storage import cell_records
from payintent.storage.cells import Cells

_AGAIN_S = 5


async def find_cell(cells: Cells, named: str | UUID | int) -> int:
    """Return the number of the cell of an id, or the cell that a merchant has by its number.

    What is no id by time, or names no cell of this installation, is looked for in cell 0. Raises
    `StorageUnavailableError` for a cell that this process has not opened.
    """
    if isinstance(named, int):
        cells.forget_place(named)  # it may have been moved this moment
        return await cells.number_of_merchant(named) if is_database_id(named) else 0
    row_id = named if isinstance(named, UUID) else ids.parse_id(named.partition("_")[0], named)
    return 0 if row_id is None else await _cell_of(cells, row_id)


def require_cell(cells: Cells, number: int | None) -> None:
    """Raise `NOT_FOUND` where a cell is named that this process has not opened."""
    if number is not None and number not in cells.numbers():
        raise RefusedError(ErrorCode.NOT_FOUND, f"no cell {number}")


def cell_away(number: int, error: StorageUnavailableError) -> RefusedError:
    """Say which cell does not answer; whether what was begun there is stored is unknown."""
    return RefusedError(
        ErrorCode.SERVICE_UNAVAILABLE,
        f"cell {number} does not answer ({error}): try again when it does",
        retry_after_s=_AGAIN_S,
    )


async def _cell_of(cells: Cells, row_id: UUID) -> int:
    number = ids.cell_of_timed(row_id)
    if cells.numbered(number) is None:
        listed = await cells.read_copy(cell_records.list_cells)
        if number not in {cell.number for cell in listed}:
            return 0
        cells.at(number)  # raises
    return number
