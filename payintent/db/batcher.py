"""Natural batching: requests that arrive while a statement is running share the next statement.

An idle batcher runs a request immediately, on its own. Requests that arrive in the meantime form a
second batch, which starts in the next iteration of the event loop. Later requests wait until either
batch finishes. The batch size thus adapts to the load, and no request waits for a batch to fill up.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from contextvars import Context
from typing import Generic, TypeVar

from payintent.core.errors import StorageUnavailableError

#: How long a batch waits for a locked row before its items are run separately.
LOCK_TIMEOUT_MS = 50
_SIZE_MAX = 100
_LATE_S = 0.02
#: With two running batches, the database can execute a batch while this process reads the results
#: of the previous batch, and neither of two concurrent callers has to wait.
_RUNNING_MAX = 2

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Member(Generic[Item, Result]):
    __slots__ = ("future", "item")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def succeed(self, result: Result) -> None:
        if not self.future.done():  # it is cancelled if the caller has disconnected
            self.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Batcher(Generic[Item, Result]):
    """Runs items of the same kind, individually or in batches, with a separate result for each.

    `process_batch` must return the results in the order of the items. If it fails, it must not
    leave any changes: each item is then processed again on its own, and only invalid items fail.
    After a `StorageUnavailableError`, the outcome is unknown, so all callers receive the error.
    `process_item` is an optional, cheaper way to process a single item.

    Items that share an identity are never in the same batch. If a batch takes longer than `late_s`,
    for example because it is waiting for a lock, the next batch starts without waiting for it.
    """

    def __init__(
        self,
        process_batch: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        process_item: Callable[[Item], Awaitable[Result]] | None = None,
        identities: Callable[[Item], Collection[Hashable]] = lambda _: (),
        size_max: int = _SIZE_MAX,
        late_s: float = _LATE_S,
    ) -> None:
        self._process_batch = process_batch
        self._process_item = process_item or self._process_batch_of_one
        self._identities = identities
        self._size_max = size_max
        self._late_s = late_s
        self._queue: deque[_Member[Item, Result]] = deque()
        self._running: set[asyncio.TimerHandle] = set()  # batches that are not late yet
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, item: Item) -> Result:
        """Run an item immediately or in the next batch. Exceptions propagate to the caller."""
        if not self._running:
            timer = self._begin()
            try:
                return await self._process_item(item)
            finally:
                self._end(timer)
        member: _Member[Item, Result] = _Member(item)
        if not self._queue and len(self._running) < _RUNNING_MAX:
            # Deferred, so that all requests of this event loop iteration share the batch.
            asyncio.get_running_loop().call_soon(self._start_next)
        self._queue.append(member)
        return await member.future

    async def _process_batch_of_one(self, item: Item) -> Result:
        [result] = await self._process_batch([item])
        return result

    async def close(self) -> None:
        """Wait for running batches. Their callers may have disconnected."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self) -> asyncio.TimerHandle:
        timer = asyncio.get_running_loop().call_later(self._late_s, lambda: self._end(timer))
        self._running.add(timer)
        return timer

    def _end(self, timer: asyncio.TimerHandle) -> None:
        """Start the next batch, unless it has already started because this batch was late."""
        if timer in self._running:
            timer.cancel()
            self._running.remove(timer)
            self._start_next()

    def _start_next(self) -> None:
        if len(self._running) < _RUNNING_MAX and (batch := self._collect_next_batch()):
            # A batch must not inherit the log fields or the transaction of its first request.
            task = asyncio.get_running_loop().create_task(
                self._run_batch(batch, self._begin()), context=Context()
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _collect_next_batch(self) -> list[_Member[Item, Result]]:
        batch: list[_Member[Item, Result]] = []
        later: list[_Member[Item, Result]] = []
        batch_identities: set[Hashable] = set()
        while self._queue and len(batch) < self._size_max:
            member = self._queue.popleft()
            if member.future.done():  # its caller has disconnected
                continue
            identities = self._identities(member.item)
            if batch_identities.isdisjoint(identities):
                batch_identities.update(identities)
                batch.append(member)
            else:
                later.append(member)
        self._queue.extendleft(reversed(later))
        return batch

    async def _run_batch(
        self, batch: list[_Member[Item, Result]], timer: asyncio.TimerHandle
    ) -> None:
        try:
            if len(batch) == 1:
                await self._run_alone(batch[0])
                return
            is_done = await self._run_together(batch)
        finally:
            self._end(timer)
        if not is_done:
            await asyncio.gather(*map(self._run_alone, batch))

    async def _run_together(self, batch: list[_Member[Item, Result]]) -> bool:
        """Run a batch; return False if it failed and its items must be run separately."""
        try:
            results = await self._process_batch([member.item for member in batch])
        except StorageUnavailableError as error:
            for member in batch:
                member.fail(type(error)(*error.args))
        except Exception:  # noqa: BLE001 - the invalid item raises it again when it runs separately
            return False
        else:
            for member, result in zip(batch, results, strict=True):
                member.succeed(result)
        return True

    async def _run_alone(self, member: _Member[Item, Result]) -> None:
        if member.future.done():  # its caller has disconnected since the batch was formed
            return
        try:
            member.succeed(await self._process_item(member.item))
        except Exception as error:  # noqa: BLE001 - propagated to the caller
            member.fail(error)
