"""Parts the logs of a contract among cells; `payintent/onchain/cell_logs.py` says by what rule."""

from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

from payintent.domain import ids
from payintent.domain.evm import ContractLog, RefundedLog
from payintent.storage import cell_records
from payintent.storage.database import Executor

_Log = TypeVar("_Log", bound=ContractLog)


async def logs_by_cell(control: Executor, logs: Sequence[_Log]) -> dict[int, list[_Log]]:
    """Part logs that were read before among the cells that take them."""
    named = [number_in(log) for log in logs]
    others = set(named) - {0}
    cells = await cell_records.pick_cells(control, sorted(others)) if others else set[int]()
    found: dict[int, list[_Log]] = {}
    for log, number in zip(logs, named, strict=True):
        found.setdefault(number if number in cells else 0, []).append(log)
    return found


def number_in(log: ContractLog) -> int:
    """Return the number that a log has: in its name on the chain, or in the refund's id."""
    if isinstance(log, RefundedLog):
        return ids.cell_of_timed(UUID(bytes=log.refund_id))
    return ids.cell_of_opaque(UUID(bytes=log.uuid))
