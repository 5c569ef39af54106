"""Concurrent refunds over HTTP never exceed the remainder, and a key creates one refund."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from payintent.gateways.port import GatewayRefundState, RefundReport
from payintent.refunds.settle import settle_refund
from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.refunds.requests import ask, capture_of, kept, paid, read, send, uuid_of
from tests.support.arrange import payment_of, refusal
from tests.support.patience import PATIENCE_S
from tests.support.serving import serving_api
from tests.support.staging import hold_transaction
from tests.support.world import Answer, Api, World, patient

DONE = RefundReport(state=GatewayRefundState.DONE)
_TOO_MUCH = (409, "REFUND_EXCEEDS_REMAINING")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return patient(settings)


@asynccontextmanager
async def another(world: World, **changes: Any) -> AsyncIterator[Api]:
    """The API of another process, with a separate service and connections."""
    settings = world.service.settings.model_copy(update=changes)
    service = await open_service(settings, {"fake": world.gateway})
    async with serving_api(settings, replace(world, service=service)) as api:
        yield api


@pytest.fixture
async def apis(api: Api) -> AsyncIterator[list[Api]]:
    async with another(api.world) as second:
        yield [api, second]


async def fifty(apis: list[Api], asking: Callable[[Api], Awaitable[Answer]]) -> list[Answer]:
    return await asyncio.gather(*(asking(apis[number % len(apis)]) for number in range(50)))


async def test_only_one_of_fifty_concurrent_refunds_of_60_is_accepted_for_a_payment_of_100(
    apis: list[Api],
) -> None:
    api = apis[0]
    created = await paid(api, currency="USD", amount="100.00")
    answers = await fifty(apis, lambda one: ask(one, created, amount="60.00"))
    accepted = [answer for answer in answers if answer.status == 201]
    assert Counter(refusal(answer) for answer in answers if answer.status != 201) == {_TOO_MUCH: 49}
    [only] = accepted
    assert await capture_of(api, created) == (10000, 0, 6000)
    await send(api.world)
    assert (await read(api, only.json["id"])).json["status"] == "SUCCEEDED"
    seen = (await api.get(created.json["id"])).json
    assert (seen["status"], seen["refunded_amount"]) == ("PARTIALLY_REFUNDED", "60.00")
    assert [refund.amount_minor for refund in api.world.gateway.refunds] == [6000]
    [row] = await kept(api.world)
    assert uuid_of(only) == row["id"]


async def test_fifty_concurrent_small_refunds_never_exceed_the_payment(
    apis: list[Api],
) -> None:
    """While workers settle them: accepting and settling lock in the same order."""
    api = apis[0]
    created = await paid(api, currency="USD", amount="100.00")
    asked = asyncio.create_task(fifty(apis, lambda one: ask(one, created, amount="3.00")))
    while not asked.done():
        await asyncio.gather(send(api.world), send(api.world))
        await asyncio.sleep(0)
    await send(api.world)
    told = Counter(item.status if item.status == 201 else refusal(item) for item in await asked)
    assert told == {201: 33, _TOO_MUCH: 17}
    seen = (await api.get(created.json["id"])).json
    assert (seen["status"], seen["refunded_amount"]) == ("PARTIALLY_REFUNDED", "99.00")
    assert await capture_of(api, created) == (10000, 9900, 0)
    assert len({refund.refund_id for refund in api.world.gateway.refunds}) == 33


async def test_fifty_concurrent_requests_with_the_same_key_create_a_single_refund(
    apis: list[Api],
) -> None:
    created, key = await paid(apis[0]), str(uuid4())
    answers = await fifty(apis, lambda one: ask(one, created, key, amount="1.00"))
    assert {answer.status for answer in answers} == {201}
    assert len({answer.body for answer in answers}) == 1
    assert sum("Idempotency-Replayed" not in answer.headers for answer in answers) == 1
    assert len(await kept(apis[0].world)) == 1
    assert await capture_of(apis[0], created) == (159000, 0, 100)


@asynccontextmanager
async def refunds_held_up(world: World) -> AsyncIterator[asyncpg.Connection]:
    """Block every transaction that is about to write a refund while the block runs."""
    holder = await world.open_connection()
    try:
        async with holder.transaction():
            await holder.execute("LOCK TABLE refund IN SHARE MODE")
            yield holder
    finally:
        await holder.close()


async def until_locks_wait(world: World, kind: str, count: int, *tasks: asyncio.Task[Any]) -> None:
    """Wait until this many locks of a kind are requested but not granted."""
    watcher = await world.open_connection()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while count > await watcher.fetchval(
                "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
                "WHERE a.datname = current_database() AND NOT l.granted AND l.locktype = $1",
                kind,
            ):
                assert not any(task.done() for task in tasks), "it did not wait"
                await asyncio.sleep(0.005)
    finally:
        await watcher.close()


async def test_a_refund_waits_for_a_concurrent_refund_and_respects_its_reservation(
    apis: list[Api],
) -> None:
    first_api, second_api = apis
    world = first_api.world
    created = await paid(first_api)
    async with refunds_held_up(world):
        first = asyncio.create_task(ask(first_api, created, amount="1000.00"))
        await until_locks_wait(world, "relation", 1, first)
        second = asyncio.create_task(ask(second_api, created, amount="1000.00"))
        await until_locks_wait(world, "transactionid", 1, first, second)
    assert (await first).status == 201
    assert refusal(await second) == _TOO_MUCH
    assert len(await kept(world)) == 1


async def test_a_request_with_the_same_key_waits_for_the_first_and_replays_its_response(
    apis: list[Api],
) -> None:
    first_api, second_api = apis
    world, key = first_api.world, str(uuid4())
    created = await paid(first_api)
    async with refunds_held_up(world):
        first = asyncio.create_task(ask(first_api, created, key))
        await until_locks_wait(world, "relation", 1, first)
        second = asyncio.create_task(ask(second_api, created, key))
        await until_locks_wait(world, "transactionid", 1, first, second)
    answers = await first, await second
    assert [answer.status for answer in answers] == [201, 201]
    assert answers[0].body == answers[1].body
    assert answers[1].headers["Idempotency-Replayed"] == "true"
    assert len(await kept(world)) == 1


async def test_a_refund_waits_until_an_earlier_refund_is_settled(
    api: Api,
) -> None:
    created = await paid(api)
    first = uuid_of(await ask(api, created, amount="90.00"))
    world = api.world
    declined = RefundReport(state=GatewayRefundState.DECLINED)
    settles = [
        lambda tx: settle_refund(tx, first, declined),
        lambda tx: settle_refund(tx, uuid_of(second), DONE),
    ]
    async with hold_transaction(world, settles[0]) as settling:
        asked = asyncio.create_task(ask(api, created, amount="1590.00"))  # more than was left
        await until_locks_wait(world, "transactionid", 1, asked)
        await settling.commit()
        second = await asked
    assert second.status == 201
    async with hold_transaction(world, settles[1]) as settling:
        asked = asyncio.create_task(ask(api, created))
        await until_locks_wait(world, "transactionid", 1, asked)
        await settling.commit()
        assert refusal(await asked) == (409, "INVALID_PAYMENT_STATE")
    assert await world.status(await payment_of(api, created)) == "REFUNDED"


async def test_a_request_that_exceeds_the_lock_timeout_gets_a_retry_after(api: Api) -> None:
    """With an installation's lock timeout; the key stays free."""
    created, key = await paid(api), str(uuid4())
    payment = await payment_of(api, created)
    holder = await api.world.open_connection()
    async with holder.transaction(), another(api.world, database_lock_timeout_ms=100) as hurried:
        await holder.execute("SELECT 1 FROM payment WHERE id = $1 FOR UPDATE", payment.id)
        answer = await ask(hurried, created, key)
    await holder.close()
    assert refusal(answer) == (409, "CONFLICT")
    assert answer.headers["Retry-After"] == "1"
    again = await ask(api, created, key)
    assert (again.status, again.headers.get("Idempotency-Replayed")) == (201, None)
