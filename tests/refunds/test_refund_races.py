"""Concurrent refunds over HTTP never exceed the remainder, and a key creates a single refund."""

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
from tests.refunds.requests import (
    create_paid,
    get_refund,
    parse_refund_id,
    post_refund,
    process_refunds,
    read_capture,
    read_stored_refunds,
)
from tests.support.arrange import payment_of, refusal
from tests.support.race_staging import hold_transaction
from tests.support.running_service import serving_api
from tests.support.timeouts import PATIENCE_S
from tests.support.world import Answer, Api, World, patient

DONE = RefundReport(state=GatewayRefundState.DONE)
_TOO_MUCH = (409, "REFUND_EXCEEDS_REMAINING")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return patient(settings)


@asynccontextmanager
async def serving_second_api(world: World, **changes: Any) -> AsyncIterator[Api]:
    """Serve the API like another process, with its own service and connections."""
    settings = world.service.settings.model_copy(update=changes)
    service = await open_service(settings, {"fake": world.gateway})
    async with serving_api(settings, replace(world, service=service)) as api:
        yield api


@pytest.fixture
async def apis(api: Api) -> AsyncIterator[list[Api]]:
    async with serving_second_api(api.world) as second:
        yield [api, second]


async def send_fifty(
    apis: list[Api], send_request: Callable[[Api], Awaitable[Answer]]
) -> list[Answer]:
    return await asyncio.gather(*(send_request(apis[number % len(apis)]) for number in range(50)))


async def test_only_one_of_fifty_concurrent_refunds_of_60_is_accepted_for_a_payment_of_100(
    apis: list[Api],
) -> None:
    api = apis[0]
    created = await create_paid(api, currency="USD", amount="100.00")
    answers = await send_fifty(apis, lambda client: post_refund(client, created, amount="60.00"))
    accepted = [answer for answer in answers if answer.status == 201]
    assert Counter(refusal(answer) for answer in answers if answer.status != 201) == {_TOO_MUCH: 49}
    [accepted_refund] = accepted
    assert await read_capture(api, created) == (10000, 0, 6000)
    await process_refunds(api.world)
    assert (await get_refund(api, accepted_refund.json["id"])).json["status"] == "SUCCEEDED"
    payment = (await api.get(created.json["id"])).json
    assert (payment["status"], payment["refunded_amount"]) == ("PARTIALLY_REFUNDED", "60.00")
    assert [refund.amount_minor for refund in api.world.gateway.refunds] == [6000]
    [row] = await read_stored_refunds(api.world)
    assert parse_refund_id(accepted_refund) == row["id"]


async def test_fifty_concurrent_small_refunds_never_exceed_the_payment(
    apis: list[Api],
) -> None:
    """Workers settle the refunds concurrently. Creating and settling use the same lock order."""
    api = apis[0]
    created = await create_paid(api, currency="USD", amount="100.00")
    requests = asyncio.create_task(
        send_fifty(apis, lambda client: post_refund(client, created, amount="3.00"))
    )
    while not requests.done():
        await asyncio.gather(process_refunds(api.world), process_refunds(api.world))
        await asyncio.sleep(0)
    await process_refunds(api.world)
    outcomes = Counter(
        item.status if item.status == 201 else refusal(item) for item in await requests
    )
    assert outcomes == {201: 33, _TOO_MUCH: 17}
    payment = (await api.get(created.json["id"])).json
    assert (payment["status"], payment["refunded_amount"]) == ("PARTIALLY_REFUNDED", "99.00")
    assert await read_capture(api, created) == (10000, 9900, 0)
    assert len({refund.refund_id for refund in api.world.gateway.refunds}) == 33


async def test_fifty_concurrent_requests_with_the_same_key_create_a_single_refund(
    apis: list[Api],
) -> None:
    created, key = await create_paid(apis[0]), str(uuid4())
    answers = await send_fifty(
        apis, lambda client: post_refund(client, created, key, amount="1.00")
    )
    assert {answer.status for answer in answers} == {201}
    assert len({answer.body for answer in answers}) == 1
    assert sum("Idempotency-Replayed" not in answer.headers for answer in answers) == 1
    assert len(await read_stored_refunds(apis[0].world)) == 1
    assert await read_capture(apis[0], created) == (159000, 0, 100)


@asynccontextmanager
async def hold_refund_writes(world: World) -> AsyncIterator[asyncpg.Connection]:
    """Block all transactions that write a refund until the `with` block ends."""
    holder = await world.open_connection()
    try:
        async with holder.transaction():
            await holder.execute("LOCK TABLE refund IN SHARE MODE")
            yield holder
    finally:
        await holder.close()


async def wait_for_blocked_locks(
    world: World, kind: str, count: int, *tasks: asyncio.Task[Any]
) -> None:
    """Wait until this many locks of a kind are requested but not granted."""
    watcher = await world.open_connection()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while count > await watcher.fetchval(
                "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
                "WHERE a.datname = current_database() AND NOT l.granted AND l.locktype = $1",
                kind,
            ):
                assert not any(task.done() for task in tasks), "the task ended instead of waiting"
                await asyncio.sleep(0.005)
    finally:
        await watcher.close()


async def test_a_refund_waits_for_a_concurrent_refund_and_respects_its_reservation(
    apis: list[Api],
) -> None:
    first_api, second_api = apis
    world = first_api.world
    created = await create_paid(first_api)
    async with hold_refund_writes(world):
        first = asyncio.create_task(post_refund(first_api, created, amount="1000.00"))
        await wait_for_blocked_locks(world, "relation", 1, first)
        second = asyncio.create_task(post_refund(second_api, created, amount="1000.00"))
        await wait_for_blocked_locks(world, "transactionid", 1, first, second)
    assert (await first).status == 201
    assert refusal(await second) == _TOO_MUCH
    assert len(await read_stored_refunds(world)) == 1


async def test_a_request_with_the_same_key_waits_for_the_first_and_replays_its_response(
    apis: list[Api],
) -> None:
    first_api, second_api = apis
    world, key = first_api.world, str(uuid4())
    created = await create_paid(first_api)
    async with hold_refund_writes(world):
        first = asyncio.create_task(post_refund(first_api, created, key))
        await wait_for_blocked_locks(world, "relation", 1, first)
        second = asyncio.create_task(post_refund(second_api, created, key))
        await wait_for_blocked_locks(world, "transactionid", 1, first, second)
    answers = await first, await second
    assert [answer.status for answer in answers] == [201, 201]
    assert answers[0].body == answers[1].body
    assert answers[1].headers["Idempotency-Replayed"] == "true"
    assert len(await read_stored_refunds(world)) == 1


async def test_a_refund_waits_until_an_earlier_refund_is_settled(
    api: Api,
) -> None:
    created = await create_paid(api)
    first = parse_refund_id(await post_refund(api, created, amount="90.00"))
    world = api.world
    declined = RefundReport(state=GatewayRefundState.DECLINED)
    settles = [
        lambda tx: settle_refund(tx, first, declined),
        lambda tx: settle_refund(tx, parse_refund_id(second), DONE),
    ]
    async with hold_transaction(world, settles[0]) as settling:
        request = asyncio.create_task(
            post_refund(api, created, amount="1590.00")
        )  # more than remains
        await wait_for_blocked_locks(world, "transactionid", 1, request)
        await settling.commit()
        second = await request
    assert second.status == 201
    async with hold_transaction(world, settles[1]) as settling:
        request = asyncio.create_task(post_refund(api, created))
        await wait_for_blocked_locks(world, "transactionid", 1, request)
        await settling.commit()
        assert refusal(await request) == (409, "INVALID_PAYMENT_STATE")
    assert await world.status(await payment_of(api, created)) == "REFUNDED"


async def test_a_request_that_exceeds_the_lock_timeout_gets_a_retry_after(api: Api) -> None:
    """The lock timeout is short, and the key stays free."""
    created, key = await create_paid(api), str(uuid4())
    payment = await payment_of(api, created)
    holder = await api.world.open_connection()
    async with (
        holder.transaction(),
        serving_second_api(api.world, database_lock_timeout_ms=100) as impatient_api,
    ):
        await holder.execute("SELECT 1 FROM payment WHERE id = $1 FOR UPDATE", payment.id)
        answer = await post_refund(impatient_api, created, key)
    await holder.close()
    assert refusal(answer) == (409, "CONFLICT")
    assert answer.headers["Retry-After"] == "1"
    retry = await post_refund(api, created, key)
    assert (retry.status, retry.headers.get("Idempotency-Replayed")) == (201, None)
