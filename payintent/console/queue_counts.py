"""The counts of open entries that the navigation shows next to the queues."""

import time
from collections.abc import Callable, Mapping

from payintent.db.database import Executor
from payintent.overview.store import QUEUE_COUNT_MAX, QueueFigures, count_queues
from payintent.runtime.caches import TtlCache

_MAX_AGE_S = 2.0
_EMPTY = QueueFigures(cases=0, refunds=0, disputes=0, deliveries_dead=0, approvals=0)
#: The unit of each count, by the queue's label in the navigation.
QUEUE_UNITS: Mapping[str, str] = {
    "Cases": "open",
    "Refunds": "to approve",
    "Disputes": "open",
    "Webhooks": "dead",
    "Approvals": "pending",
}


class QueueCounts:
    """Caches the counts for two seconds, so that all operators share one query per process."""

    def __init__(self, database: Executor, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._cache: TtlCache[QueueFigures] = TtlCache(self._read, _EMPTY, _MAX_AGE_S, monotonic)

    async def get(self, *, is_changed: bool = False) -> Mapping[str, int]:
        """Return the counts by label. After a change (`is_changed`), the entries are recounted."""
        if is_changed:  # a query that is in progress may have missed the change
            self._cache.invalidate()
            figures = await count_queues(self._database)
        else:
            figures = await self._cache.get()
        return {
            "Cases": figures.cases,
            "Refunds": figures.refunds,
            "Disputes": figures.disputes,
            "Webhooks": figures.deliveries_dead,
            "Approvals": figures.approvals + figures.refunds,
        }

    async def _read(self, _: QueueFigures) -> QueueFigures:
        return await count_queues(self._database)


def format_queue_count(count: int) -> str:
    """Format a count; `99+` for any count above 99."""
    return str(count) if count < QUEUE_COUNT_MAX else f"{QUEUE_COUNT_MAX - 1}+"
