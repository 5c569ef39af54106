"""Natural batching: which items share a batch, their results, and no delays."""

import asyncio
from collections.abc import Sequence

import pytest

from payintent.core.errors import StorageUnavailableError
from payintent.db.batcher import Batcher
from tests.support.timeouts import PATIENCE_S


class Work:
    """Doubles numbers, and records each run. Numbers on hold wait for `release`."""

    def __init__(self, size_max: int = 100) -> None:
        self.runs: list[list[int]] = []
        self.gates: dict[int, asyncio.Event] = {}
        self.batch_error: Exception | None = None
        self.batcher: Batcher[int, int] = Batcher(
            self._run_batch, self._run_item, lambda item: (abs(item), item % 1000), size_max
        )

    def hold(self, *items: int) -> None:
        self.gates |= {item: asyncio.Event() for item in items}

    def release(self, *items: int) -> None:
        for item in items:
            self.gates[item].set()

    def start(self, *items: int) -> list[asyncio.Task[int]]:
        return [asyncio.create_task(self.batcher.run(item)) for item in items]

    async def wait_until_run(self, *items: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while list(items) not in self.runs:
                await asyncio.sleep(0)

    async def _run_item(self, item: int) -> int:
        await self._record_run([item])
        if item == 0:
            raise ValueError("zero")
        return 2 * item

    async def _run_batch(self, items: Sequence[int]) -> list[int]:
        await self._record_run(list(items))
        if self.batch_error is not None:
            raise self.batch_error
        if 0 in items:
            raise ValueError("zero is among them")
        return [2 * item for item in items]

    async def _record_run(self, items: list[int]) -> None:
        self.runs.append(items)
        await asyncio.sleep(0)
        for item in items:
            if item in self.gates:
                await self.gates[item].wait()


async def test_an_idle_batcher_runs_an_item_immediately_and_alone() -> None:
    work = Work()
    assert await work.batcher.run(4) == 8
    assert await work.batcher.run(5) == 10
    assert work.runs == [[4], [5]]


async def test_a_single_item_runs_as_a_batch_if_there_is_no_function_for_one_item() -> None:
    work = Work()
    work.batcher = Batcher(work._run_batch)
    assert await asyncio.gather(*work.start(1, 2)) == [2, 4]
    assert work.runs == [[1], [2]]


async def test_two_concurrent_callers_do_not_wait_for_each_other() -> None:
    work = Work()
    work.hold(1, 2)
    tasks = work.start(1, 2)
    await work.wait_until_run(2)
    work.release(1, 2)
    assert await asyncio.gather(*tasks) == [2, 4]
    assert work.runs == [[1], [2]]


async def test_items_that_arrive_during_a_run_form_the_next_batch_with_separate_results() -> None:
    work = Work()
    assert await asyncio.gather(*work.start(1, 2, 3, 4, 5)) == [2, 4, 6, 8, 10]
    assert work.runs == [[1], [2, 3, 4, 5]]


async def test_a_batch_is_limited_in_size_and_the_remaining_items_form_further_batches() -> None:
    work = Work(size_max=2)
    assert await asyncio.gather(*work.start(*range(1, 7))) == [2, 4, 6, 8, 10, 12]
    assert sorted(work.runs) == [[1], [2, 3], [4, 5], [6]]


async def test_items_with_the_same_identity_are_never_in_the_same_batch() -> None:
    work = Work()
    assert await asyncio.gather(*work.start(1, 2, 3, -3, 4)) == [2, 4, 6, -6, 8]
    assert work.runs == [[1], [2, 3, 4], [-3]]


async def test_items_that_share_any_of_their_identities_are_never_in_the_same_batch() -> None:
    work = Work()
    assert await asyncio.gather(*work.start(1, 2, 3, 1003, 4)) == [2, 4, 6, 2006, 8]
    assert work.runs == [[1], [2, 3, 4], [1003]]


async def test_the_items_of_a_failed_batch_are_run_alone_so_that_only_invalid_items_fail() -> None:
    work = Work()
    results = await asyncio.gather(*work.start(1, 2, 3, 0, 4), return_exceptions=True)
    assert [type(result) if isinstance(result, Exception) else result for result in results] == [
        2,
        4,
        6,
        ValueError,
        8,
    ]
    assert work.runs[1:] == [[2, 3, 0, 4], [2], [3], [0], [4]]


async def test_a_batch_with_an_unknown_outcome_is_not_retried() -> None:
    work = Work()
    work.batch_error = StorageUnavailableError("lost")
    results = await asyncio.gather(*work.start(1, 2, 3), return_exceptions=True)
    assert results[0] == 2
    assert [str(result) for result in results[1:]] == ["lost", "lost"]
    assert (
        results[1] is not results[2]
    )  # if callers shared an error, its traceback would grow with each raise
    assert work.runs == [[1], [2, 3]]


async def test_an_item_whose_caller_is_cancelled_before_the_batch_starts_is_not_run() -> None:
    work = Work()
    work.hold(1, 2)
    first, second = work.start(1, 2)
    await work.wait_until_run(2)
    third, fourth = work.start(3, 4)
    await asyncio.sleep(0)
    third.cancel()
    with pytest.raises(asyncio.CancelledError):
        await third
    work.release(1, 2)
    assert await asyncio.gather(first, second, fourth) == [2, 4, 8]
    assert work.runs == [[1], [2], [4]]


async def test_cancelling_a_caller_during_its_batch_does_not_affect_other_callers() -> None:
    work = Work()
    work.hold(2)
    _, second, third = work.start(1, 2, 3)
    await work.wait_until_run(2, 3)
    second.cancel()
    work.release(2)
    assert await third == 6
    await work.batcher.close()


async def test_a_slow_batch_does_not_delay_the_next_batch() -> None:
    work = Work()
    work.hold(1, 2, 3)
    slow_tasks = work.start(1, 2)
    await work.wait_until_run(2)
    slow_tasks += work.start(3)
    await work.wait_until_run(3)  # starts although two batches are on hold
    assert await work.batcher.run(4) == 8
    work.release(1, 2, 3)
    assert await asyncio.gather(*slow_tasks) == [2, 4, 6]


async def test_closing_waits_for_running_batches_with_cancelled_callers() -> None:
    work = Work()
    work.hold(3)
    tasks = work.start(1, 3, 4)
    await work.wait_until_run(3, 4)
    for task in tasks:
        task.cancel()
    closing = asyncio.create_task(work.batcher.close())
    await asyncio.sleep(0)
    assert not closing.done()
    work.release(3)
    await closing
