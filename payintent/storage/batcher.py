"""Natural batching: what arrives while a statement is under way shares the next one.

A request that finds nothing under way is run at once and alone. Requests that arrive meanwhile
gather, and share one statement or transaction: a second one in the next turn of the loop, the
others when one of the two ends. So the size of a batch follows the load, and nothing ever waits for
a batch to fill.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from contextvars import Context
from typing import Generic, TypeVar

from payintent.domain.errors import StorageUnavailableError

#: How long a batch waits for a row that another transaction holds, before it is taken apart.
LOCK_TIMEOUT_MS = 50
_SIZE_MAX = 100
_LATE_S = 0.02
#: With two, the database works on a batch while this process reads the answers of the other, and
#: of two callers none waits.
_UNDER_WAY_MAX = 2

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Member(Generic[Item, Result]):
    """An item that waits for its batch, and its caller's future."""

    __slots__ = ("future", "item")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def succeed(self, result: Result) -> None:
        if not self.future.done():  # a caller that has gone has cancelled it
            self.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Batcher(Generic[Item, Result]):
    """Runs items of one kind, alone or in batches; each has an outcome of its own.

    `together` returns a result for each of its items, in their order. If it fails, it must have
    done nothing, and each item is run again by itself, so that only a bad item fails. The exception
    is `StorageUnavailableError`, after which it is not known what was done: every caller gets it.
    `alone` is a cheaper way to run a single item, if there is one.

    `identities` of an item are what it shares with no other one of its batch. What takes longer
    than `late_s`, such as what waits for a lock, holds up those behind it no more: the next batch
    starts beside it.
    """

    def __init__(
        self,
        together: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        alone: Callable[[Item], Awaitable[Result]] | None = None,
        identities: Callable[[Item], Collection[Hashable]] = lambda _: (),
        size_max: int = _SIZE_MAX,
        late_s: float = _LATE_S,
    ) -> None:
        self._together = together
        self._alone = alone or self._run_batch_of_one
        self._identities = identities
        self._size_max = size_max
        self._late_s = late_s
        self._waiting: deque[_Member[Item, Result]] = deque()
        self._under_way: set[asyncio.TimerHandle] = set()  # what those that wait, wait for
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, item: Item) -> Result:
        """Run an item now, or in the next batch; raises what running it raises."""
        if not self._under_way:
            turn = self._begin()
            try:
                return await self._alone(item)
            finally:
                self._end(turn)
        member: _Member[Item, Result] = _Member(item)
        if not self._waiting and len(self._under_way) < _UNDER_WAY_MAX:
            asyncio.get_running_loop().call_soon(self._start_next)  # with all that arrive now
        self._waiting.append(member)
        return await member.future

    async def _run_batch_of_one(self, item: Item) -> Result:
        [result] = await self._together([item])
        return result

    async def close(self) -> None:
        """Wait for the batches whose callers have gone."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self) -> asyncio.TimerHandle:
        turn = asyncio.get_running_loop().call_later(self._late_s, lambda: self._end(turn))
        self._under_way.add(turn)
        return turn

    def _end(self, turn: asyncio.TimerHandle) -> None:
        """Let the next batch begin, unless it has since this one was late."""
        if turn in self._under_way:
            turn.cancel()
            self._under_way.remove(turn)
            self._start_next()

    def _start_next(self) -> None:
        if len(self._under_way) < _UNDER_WAY_MAX and (batch := self._take()):
            # No request's log fields, and no transaction, belong to a batch.
            task = asyncio.get_running_loop().create_task(
                self._run(batch, self._begin()), context=Context()
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _take(self) -> list[_Member[Item, Result]]:
        """Take the next batch; what has an identity of another member stays for a later one."""
        batch: list[_Member[Item, Result]] = []
        later: list[_Member[Item, Result]] = []
        taken: set[Hashable] = set()
        while self._waiting and len(batch) < self._size_max:
            member = self._waiting.popleft()
            if member.future.done():  # its caller has gone: it is not begun
                continue
            identities = self._identities(member.item)
            if taken.isdisjoint(identities):
                taken.update(identities)
                batch.append(member)
            else:
                later.append(member)
        self._waiting.extendleft(reversed(later))
        return batch

    async def _run(self, batch: list[_Member[Item, Result]], turn: asyncio.TimerHandle) -> None:
        try:
            if len(batch) == 1:
                await self._run_alone(batch[0])
                return
            done = await self._run_together(batch)
        finally:
            self._end(turn)
        if not done:
            await asyncio.gather(*map(self._run_alone, batch))

    async def _run_together(self, batch: list[_Member[Item, Result]]) -> bool:
        """Run a batch; False where it failed, so that its items must be run alone."""
        try:
            results = await self._together([member.item for member in batch])
        except StorageUnavailableError as error:
            for member in batch:
                member.fail(type(error)(*error.args))
        except Exception:  # noqa: BLE001 - the item at fault raises it again, alone
            return False
        else:
            for member, result in zip(batch, results, strict=True):
                member.succeed(result)
        return True

    async def _run_alone(self, member: _Member[Item, Result]) -> None:
        if member.future.done():  # its caller has gone since its batch was taken
            return
        try:
            member.succeed(await self._alone(member.item))
        except Exception as error:  # noqa: BLE001 - it is its caller's
            member.fail(error)
