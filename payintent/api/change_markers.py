"""Markers of changes in all cells: those of a cell that is away do not change meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import TypeVar
from uuid import UUID

from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.storage import event_feed, payment_changes
from payintent.storage.cells import Cells
from payintent.storage.database import Database

K = TypeVar("K", bound=Hashable)
_Read = Callable[[Database, Sequence[K]], Awaitable[dict[K, str]]]


async def payment_change_markers(cells: Cells, payment_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return for each payment a text that changes whenever its checkout page would."""
    if not cells.are_several:
        return await payment_changes.change_markers(cells.control, payment_ids)
    by_cell: dict[int, list[UUID]] = {}
    for payment_id in payment_ids:
        cell = cells.number_of(payment_id)
        by_cell.setdefault(cell, []).append(payment_id)
    return await _read_all(cells, by_cell, payment_changes.change_markers)


async def event_change_markers(cells: Cells, merchant_ids: Sequence[int]) -> dict[int, str]:
    """Return for each merchant a text that changes with every event that its feed gets."""
    if not cells.are_several:
        return await event_feed.change_markers(cells.control, merchant_ids)
    by_cell: dict[int, list[int]] = {}
    for merchant_id in merchant_ids:
        for cell in await cells.numbers_of_merchant(merchant_id):
            by_cell.setdefault(cell, []).append(merchant_id)
    return await _read_all(cells, by_cell, event_feed.change_markers)


async def _read_all(cells: Cells, by_cell: dict[int, list[K]], read: _Read[K]) -> dict[K, str]:
    """Read the markers of all cells at once; raises only where no cell answers."""
    found = await asyncio.gather(
        *(read(cells.at(cell), keys) for cell, keys in by_cell.items()), return_exceptions=True
    )
    markers: dict[K, str] = {}
    failures: list[BaseException] = []
    for part in found:
        if isinstance(part, BaseException):
            if not isinstance(part, StorageUnavailableError | LockTimeoutError):
                raise part
            failures.append(part)
        else:
            for key, marker in part.items():
                markers[key] = f"{markers[key]} {marker}" if key in markers else marker
    if failures and len(failures) == len(found):
        raise failures[0]
    return markers
