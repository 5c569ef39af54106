"""The clock of a test merchant over all cells that it is or was in; cell 0 says where it stands.

A payment is made only in the cell that its merchant is in. So each cell that a merchant comes into
first catches up: then whatever is made there later is moved by nothing that was before it.
"""

from contextlib import AsyncExitStack

from payintent.storage import merchant_cells, test_clock
from payintent.storage.cells import Cells
from payintent.storage.test_clock import MovedTimes


async def advance(cells: Cells, merchant_id: int, seconds: int) -> tuple[int, MovedTimes]:
    """Move the clock on in all cells; returns by how much it is in all, and what was moved.

    A cell that does not answer lets it stand everywhere. Cell 0 commits first: one that lags
    behind, as the process was killed, catches up at the next move of the clock or the merchant.
    """
    async with AsyncExitStack() as others, cells.control.transaction() as control:
        advanced_s = await test_clock.advance(control, merchant_id, seconds)
        moved = await test_clock.move_times(control, merchant_id, seconds)
        # Read under the clock's lock. A move takes it before it opens the next place, unless the
        # clock was never moved: then there is no row to lock, and nothing to catch up with.
        [place] = await merchant_cells.find_places(control, [merchant_id])
        for number in sorted({place.cell, *place.others} - {0}):
            cell = await others.enter_async_context(cells.at(number).transaction())
            moved += await test_clock.catch_up(cell, merchant_id, advanced_s)
    return advanced_s, moved


async def catch_up(cells: Cells, merchant_id: int, number: int) -> None:
    """Let a cell catch up before a merchant has payments there."""
    async with cells.control.transaction() as control:
        advanced_s = await test_clock.lock(control, merchant_id)
        if number and advanced_s:
            async with cells.at(number).transaction() as cell:
                await test_clock.catch_up(cell, merchant_id, advanced_s)
