"""Concurrent work on leased rows, with a limit per gateway account."""

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
_IN_FLIGHT_PER_ACCOUNT_MAX = 50  # an unresponsive gateway must not block the rest

STEP_FAILURES = Counter("payintent_worker_failures_total", "Steps that failed", ["step"])

T = TypeVar("T")


class LeasedTaskRunner(Generic[T]):
    """Works on each leased row in its own task; a row becomes due again if its task fails."""

    def __init__(
        self,
        name: str,
        batch_max: int,
        claim: Callable[[int, Sequence[int]], Awaitable[list[T]]],
        account_of: Callable[[T], int],
        work: Callable[[T], Awaitable[None]],
    ) -> None:
        self._name = name
        self._batch_max = batch_max
        self._claim = claim
        self._account_of = account_of
        self._work = work
        self._loads: Counts[int] = Counts()  # running tasks per account
        self._tasks: set[asyncio.Task[None]] = set()

    async def step(self) -> bool:
        """Claim due rows and start their tasks; True if there may be more."""
        limit = min(self._batch_max, _IN_FLIGHT_MAX - len(self._tasks))
        if limit <= 0:
            return False
        busy = [
            account_id
            for account_id, count in self._loads.items()
            if count >= _IN_FLIGHT_PER_ACCOUNT_MAX
        ]
        items = await self._claim(limit, busy)
        for item in items:
            account_id = self._account_of(item)
            self._loads[account_id] += 1
            task = asyncio.create_task(self._work_and_log(item))
            self._tasks.add(task)
            task.add_done_callback(partial(self._forget, account_id))
        return len(items) == limit

    async def finish(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work_and_log(self, item: T) -> None:
        try:
            await self._work(item)
        except (StorageUnavailableError, LockTimeoutError) as error:
            _log.warning("step_deferred", step=self._name, why=type(error).__name__)
        except Exception as error:  # noqa: BLE001 - the lease makes the row due again
            STEP_FAILURES.labels(self._name).inc()
            _log.error("step_failed", step=self._name, exc_info=error)

    def _forget(self, account_id: int, task: asyncio.Task[None]) -> None:
        self._loads[account_id] -= 1
        if not self._loads[account_id]:
            del self._loads[account_id]
        self._tasks.discard(task)
