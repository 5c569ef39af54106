"""How far chains are read in all cells: of each chain what is shown is the cell that is worst."""

from collections.abc import Sequence
from dataclasses import replace

from payintent.storage.cells import Cells
from payintent.storage.database import Database
from payintent.storage.merge_lists import ask_cells
from payintent.storage.onchain import chains
from payintent.storage.onchain.chains import ChainCursor


async def find_worst_cursors(
    cells: Cells, slugs: Sequence[str]
) -> tuple[dict[str, ChainCursor], tuple[int, ...]]:
    """Return the cursor of each chain that is read, and the cells that do not answer.

    Of several cells it is that of one that has halted, else of one that is not watched, else of
    the one that is furthest behind. Beside cell 0 the reason of a halt begins with the cell.
    """

    async def read(database: Database) -> list[ChainCursor]:
        found = [await chains.get_cursor(database, slug) for slug in slugs]
        return [cursor for cursor in found if cursor is not None]

    answers, away = await ask_cells(dict(cells.items()), read)
    worst: dict[str, ChainCursor] = {}
    for number, cursors in answers.items():
        for cursor in cursors:
            named = _naming(number, cursor)
            worst[cursor.chain] = min(worst.get(cursor.chain, named), named, key=_order)
    return worst, away


def _naming(cell: int, cursor: ChainCursor) -> ChainCursor:
    if cell == 0 or cursor.halted is None:
        return cursor
    return replace(cursor, halted=f"cell {cell}: {cursor.halted}")


def _order(cursor: ChainCursor) -> tuple[bool, bool, int]:
    return cursor.halted is None, cursor.watched, cursor.block
