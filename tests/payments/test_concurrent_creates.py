"""Concurrent requests with the same key in a process share the result of one request."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from payintent.core.errors import ErrorCode, RefusedError, StorageUnavailableError
from payintent.fraud.model import FraudDenial, FraudDeniedError, RiskLevel
from payintent.payments.create import ConcurrentCreateRequests, CreatedPayment
from payintent.payments.model import IdempotentRequest
from tests.support.timeouts import PATIENCE_S
from tests.support.world import World

KEY = UUID(int=1)
DENIAL = FraudDenial(rule_id=1, code="BLOCKED", level=RiskLevel.HIGH, score=90, rule="payer:1")


class Work:
    """A create function that waits for its outcome, and counts its calls."""

    def __init__(self) -> None:
        self.call_count = 0
        self._outcomes: asyncio.Queue[CreatedPayment | BaseException] = asyncio.Queue()

    async def __call__(self) -> CreatedPayment:
        self.call_count += 1
        outcome = await self._outcomes.get()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def finish(self, outcome: CreatedPayment | BaseException) -> None:
        self._outcomes.put_nowait(outcome)


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
async def created(world: World) -> CreatedPayment:
    return CreatedPayment(await world.create(), None, replayed=False)


def start(
    requests: ConcurrentCreateRequests,
    work: Callable[[], Awaitable[CreatedPayment]],
    **changes: Any,
) -> asyncio.Task[CreatedPayment]:
    fields = {"merchant_id": 1, "key": KEY, "request_hash": b"same"} | changes
    return asyncio.create_task(requests.run_once(IdempotentRequest(**fields), work))


async def start_all(
    requests: ConcurrentCreateRequests, work: Work, count: int
) -> list[asyncio.Task[CreatedPayment]]:
    tasks = [start(requests, work) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def wait_for_second_call(work: Work) -> None:
    """Wait until the second attempt has started and all waiting requests have seen it."""
    async with asyncio.timeout(PATIENCE_S):
        while work.call_count < 2:
            await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)


async def gather_outcomes(tasks: list[asyncio.Task[CreatedPayment]]) -> list[Any]:
    async with asyncio.timeout(PATIENCE_S):
        return await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_first_request_creates_the_payment_and_concurrent_requests_share_it(
    work: Work, created: CreatedPayment
) -> None:
    tasks = await start_all(ConcurrentCreateRequests(), work, 5)
    work.finish(created)
    results = await gather_outcomes(tasks)
    assert work.call_count == 1
    assert [result.replayed for result in results] == [False, True, True, True, True]
    assert {result.payment for result in results} == {created.payment}


async def test_a_finished_request_is_not_remembered(work: Work, created: CreatedPayment) -> None:
    requests = ConcurrentCreateRequests()
    for _ in range(2):
        tasks = await start_all(requests, work, 1)
        work.finish(created)
        await gather_outcomes(tasks)
    assert work.call_count == 2
    assert requests._running == {}


@pytest.mark.parametrize("failure", [StorageUnavailableError("gone"), RuntimeError("a bug")])
async def test_the_next_request_creates_the_payment_if_the_first_fails(
    work: Work, created: CreatedPayment, failure: Exception
) -> None:
    tasks = await start_all(ConcurrentCreateRequests(), work, 4)
    work.finish(failure)
    await wait_for_second_call(work)
    work.finish(created)
    first, second, *rest = await gather_outcomes(tasks)
    assert first is failure
    assert not second.replayed
    assert [result.replayed for result in rest] == [True, True]
    assert work.call_count == 2


async def test_the_next_request_creates_the_payment_if_the_first_is_cancelled(
    work: Work, created: CreatedPayment
) -> None:
    tasks = await start_all(ConcurrentCreateRequests(), work, 3)
    tasks[0].cancel()
    await wait_for_second_call(work)
    work.finish(created)
    first, second, third = await gather_outcomes(tasks)
    assert isinstance(first, asyncio.CancelledError)
    assert (second.replayed, third.replayed) == (False, True)


async def test_cancelling_a_waiting_request_does_not_affect_the_others(
    work: Work, created: CreatedPayment
) -> None:
    tasks = await start_all(ConcurrentCreateRequests(), work, 3)
    tasks[1].cancel()
    work.finish(created)
    first, second, third = await gather_outcomes(tasks)
    assert isinstance(second, asyncio.CancelledError)
    assert (first.replayed, third.replayed, work.call_count) == (False, True, 1)


async def test_a_refusal_is_shared_by_concurrent_requests(work: Work) -> None:
    tasks = await start_all(ConcurrentCreateRequests(), work, 50)
    work.finish(RefusedError(ErrorCode.IDEMPOTENCY_CONFLICT, "the key was used"))
    results = await gather_outcomes(tasks)
    assert {(type(result), result.code) for result in results} == {
        (RefusedError, ErrorCode.IDEMPOTENCY_CONFLICT)
    }
    assert work.call_count == 1


async def test_a_denial_is_shared_as_a_replay(work: Work) -> None:
    tasks = await start_all(ConcurrentCreateRequests(), work, 3)
    work.finish(FraudDeniedError(DENIAL))
    results = await gather_outcomes(tasks)
    assert [(result.denial, result.replayed) for result in results] == [
        (DENIAL, False),
        (DENIAL, True),
        (DENIAL, True),
    ]
    assert work.call_count == 1


@pytest.mark.parametrize(
    "changes", [{"merchant_id": 2}, {"key": uuid4()}, {"request_hash": b"another"}]
)
async def test_a_request_with_another_merchant_key_or_body_does_not_wait(
    work: Work, created: CreatedPayment, changes: dict[str, Any]
) -> None:
    requests, second = ConcurrentCreateRequests(), Work()
    first = await start_all(requests, work, 1)
    second.finish(created)
    [result] = await gather_outcomes([start(requests, second, **changes)])
    assert (result.replayed, second.call_count) == (False, 1)
    work.finish(created)
    await gather_outcomes(first)


async def test_a_request_that_waited_two_seconds_is_told_to_retry(
    work: Work, created: CreatedPayment
) -> None:
    now = iter([0.0, 0.0, 2.0])  # when the first starts, the second starts, and the second waits
    requests = ConcurrentCreateRequests(lambda: next(now))
    first, second = await start_all(requests, work, 2)
    [error] = await gather_outcomes([second])
    assert (error.code, error.retry_after_s) == (ErrorCode.CONFLICT, 1)
    work.finish(created)
    assert not (await gather_outcomes([first]))[0].replayed
