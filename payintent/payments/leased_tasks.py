"""Work on leased rows: many at once, a bounded number for each gateway account."""

import asyncio
from collections import Counter as Counts
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from prometheus_client import Counter

from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.log import get_logger

_log = get_logger("workers")
_IN_FLIGHT_MAX = 200
_IN_FLIGHT_PER_ACCOUNT_MAX = 50  # a silent gateway must not hold up the others

STEP_FAILURES = Counter("payintent_worker_failures_total", "Steps that failed", ["step"])

T = TypeVar("T")


class LeasedTaskRunner(Generic[T]):
    """Works on many leased rows at once, each in a task of its own, a bounded number per account.

    A row is leased while a task works on it, so that after any failure it is due again.
    """

    def __init__(
        self,
        name: str,
        batch_max: int,
        take: Callable[[int, Sequence[int]], Awaitable[list[T]]],
        account_of: Callable[[T], int],
        work: Callable[[T], Awaitable[None]],
    ) -> None:
        self._name = name
        self._batch_max = batch_max
        self._take = take
        self._account_of = account_of
        self._work = work
        self._loads: Counts[int] = Counts()  # tasks under way at each account
        self._under_way: set[asyncio.Task[None]] = set()

    async def step(self) -> bool:
        """Claim due rows; True if there may be more."""
        limit = min(self._batch_max, _IN_FLIGHT_MAX - len(self._under_way))
        if limit <= 0:
            return False
        busy = [
            account_id
            for account_id, count in self._loads.items()
            if count >= _IN_FLIGHT_PER_ACCOUNT_MAX
        ]
        taken = await self._take(limit, busy)
        for item in taken:
            account_id = self._account_of(item)
            self._loads[account_id] += 1
            task = asyncio.create_task(self._look_after(item))
            self._under_way.add(task)
            task.add_done_callback(partial(self._ended, account_id))
        return len(taken) == limit

    async def finish(self) -> None:
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _look_after(self, item: T) -> None:
        try:
            await self._work(item)
        except (StorageUnavailableError, LockTimeoutError) as error:
            _log.warning("step_deferred", step=self._name, why=type(error).__name__)
        except Exception as error:  # noqa: BLE001 - the lease makes the row due again
            STEP_FAILURES.labels(self._name).inc()
            _log.error("step_failed", step=self._name, exc_info=error)

    def _ended(self, account_id: int, task: asyncio.Task[None]) -> None:
        self._loads[account_id] -= 1
        if not self._loads[account_id]:
            del self._loads[account_id]
        self._under_way.discard(task)
