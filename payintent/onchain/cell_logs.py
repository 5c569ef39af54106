"""Which cell takes a log of a chain: exactly one does, and no process needs to know all cells.

A payment's log has the number of its cell in the session's name on the chain, a refund's in the
refund's id: what cell 0 took as unknown is given back by a refund of cell 0, whatever its name.
A cell beside cell 0 takes the logs with its number. Cell 0 takes the rest: those without a number,
and with numbers of no cell.

Whether a number is that of a cell is asked of control's table, after the blocks were read, and not
of what this process opened at its start: it may have begun before the cell was added. A cell is in
that table before its first session is made, and the session before its log is on the chain. So
whoever has read the log of a session finds its cell there, and cell 0 never takes such a log as
unknown. The cell itself misses none: its cursor begins at a block of before its first session.
"""

from collections.abc import Sequence
from typing import TypeVar

from payintent.domain.evm import ContractLog
from payintent.storage import cell_records
from payintent.storage.database import Executor
from payintent.storage.onchain.log_cells import number_in

_Log = TypeVar("_Log", bound=ContractLog)


async def logs_of_cell(database: Executor, cell: int, logs: Sequence[_Log]) -> list[_Log]:
    """Return the logs that a cell takes; `database` is the cell's, and `logs` were read before."""
    named = [number_in(log) for log in logs]
    taken = {cell}
    if cell == 0 and (others := set(named) - {0}):
        taken |= others - await cell_records.pick_cells(database, sorted(others))
    return [log for log, number in zip(logs, named, strict=True) if number in taken]
