"""A worker catches up after a database outage, without doing anything twice."""

import asyncio
import resource
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from payintent.core.errors import StorageUnavailableError
from payintent.db.locks import LeasedTaskRunner
from payintent.merchants.operations import SetCallbackUrl
from payintent.payment_sessions.inquire import SessionInquirer
from payintent.payments.model import Payment
from payintent.refunds.send import RefundSender
from payintent.service import Service, open_service
from payintent.worker import make_inquiry_runner, make_refund_runner
from tests.refunds.refund_setup import create_paid_payment, request_refund
from tests.support.database_proxy import DatabaseProxy
from tests.support.fakes import captured
from tests.support.http_server import clean_up
from tests.support.timeouts import wait_until
from tests.support.workers import working
from tests.support.world import World

_OFTEN_S = 0.05
_STEPS = ("expire_every_s", "inquire_every_s", "refund_every_s", "webhook_poll_s")


@dataclass
class Shop:
    """The merchant's endpoint: the ids of the webhooks that it received."""

    received: list[str] = field(default_factory=list)


@pytest.fixture
async def proxy(world: World) -> AsyncIterator[DatabaseProxy]:
    database_proxy = DatabaseProxy(world.service.settings.database_url)
    await database_proxy.start()
    yield database_proxy
    await database_proxy.stop()


@pytest.fixture
async def worker(world: World, proxy: DatabaseProxy) -> AsyncIterator[Service]:
    """The service of a worker that reaches its database through the proxy."""
    settings = world.service.settings.model_copy(
        update=dict.fromkeys(_STEPS, _OFTEN_S)
        | {
            "database_url": proxy.url,
            "database_acquire_timeout_s": 0.5,
            "database_statement_timeout_ms": 1_000,
        }
    )
    service = await open_service(settings, {"fake": world.gateway})
    yield service
    await service.close()


@pytest.fixture
async def shop(world: World) -> AsyncIterator[Shop]:
    new_shop = Shop()

    async def receive(request: web.Request) -> web.Response:
        new_shop.received.append(request.headers["webhook-id"])
        return web.Response()

    app = web.Application()
    app.router.add_post("/hooks", receive)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/hooks"
    await world.perform(SetCallbackUrl(merchant_id=world.merchant_id, callback_url=url))
    yield new_shop
    await clean_up(runner)


async def _arrange_work(world: World) -> list[Payment]:
    """Create a payment to expire, a session to query and a refund; none of them is due."""
    expiring, inquired = await world.create(), await world.create()
    refunded = await create_paid_payment(world)
    await request_refund(world, refunded)
    await world.select(inquired)
    await world.rows("UPDATE session SET inquire_at = clock() + interval '1 day'")
    await world.rows("UPDATE refund SET next_at = clock() + interval '1 day'")
    await world.rows("UPDATE delivery SET next_at = clock() + interval '1 day'")
    return [expiring, inquired, refunded]


async def _make_due(world: World, payments: Sequence[Payment]) -> None:
    await world.rows("UPDATE payment SET expires_at = clock() WHERE id = $1", payments[0].id)
    await world.rows("UPDATE session SET inquire_at = clock() WHERE life <> 'ended'")
    await world.rows("UPDATE refund SET next_at = clock()")
    await world.rows("UPDATE delivery SET next_at = clock()")


async def _event_ids(world: World) -> list[str]:
    return sorted(str(row["id"]) for row in await world.rows("SELECT id FROM event"))


@pytest.mark.parametrize("frozen", [False, True])
async def test_work_that_falls_due_during_an_outage_is_done_once_after_it(
    world: World, worker: Service, proxy: DatabaseProxy, shop: Shop, frozen: bool
) -> None:
    world.gateway.answer_inquire = captured(159000, reference="by inquiry")
    payments = await _arrange_work(world)

    async def is_done() -> bool:
        statuses = [await world.status(payment) for payment in payments]
        ids = await _event_ids(world)
        return statuses == ["EXPIRED", "PAID", "REFUNDED"] and len(shop.received) >= len(ids) >= 3

    with capture_logs() as lines:
        async with working(worker):
            if frozen:
                proxy.freeze()
            else:
                await proxy.stop()
            await _make_due(world, payments)
            await wait_until(
                lambda: {line.get("step") for line in lines} >= {"expire", "inquire", "refund"},
                "every step is deferred",
            )
            assert shop.received == []
            if frozen:
                proxy.thaw()
            else:
                await proxy.start()
            await wait_until(is_done, "the worker catches up")
    assert sorted(shop.received) == await _event_ids(world)
    assert {line["event"] for line in lines if "step" in line} == {"step_deferred"}


async def test_a_worker_raises_the_open_file_limit_for_its_webhook_connections(
    world: World,
) -> None:
    """Container runtimes start processes with a soft limit of 1,024."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_024, hard_limit))
    try:
        async with working(world.service):
            pass
        raised_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft_limit, hard_limit))
    assert raised_limit > world.service.settings.webhook_sockets_max


async def test_an_account_with_fifty_calls_in_flight_gets_no_more_calls() -> None:
    go_on = asyncio.Event()
    claims: list[Sequence[int]] = []

    async def claim(limit: int, busy: Sequence[int]) -> list[int]:
        claims.append(busy)
        return [] if busy else [7] * limit

    async def call(_: int) -> None:
        await go_on.wait()

    runner = LeasedTaskRunner("inquire", 50, claim, lambda account_id: account_id, call)
    assert await runner.step()
    assert not await runner.step()
    assert claims == [[], [7]]
    go_on.set()
    await runner.finish()
    await runner.step()
    assert claims[-1] == []
    await runner.finish()


async def test_tasks_that_lose_the_database_are_deferred_and_logged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(*_: object) -> None:
        raise StorageUnavailableError("lost")

    monkeypatch.setattr(SessionInquirer, "inquire", lose)
    monkeypatch.setattr(RefundSender, "process", lose)
    await _make_due(world, await _arrange_work(world))
    with capture_logs() as lines:
        for make in (make_inquiry_runner, make_refund_runner):
            runner = make(world.service)
            await runner.step()
            await runner.finish()
    deferred = [(line["event"], line["step"]) for line in lines if "step" in line]
    assert deferred == [("step_deferred", "inquire"), ("step_deferred", "refund")]
