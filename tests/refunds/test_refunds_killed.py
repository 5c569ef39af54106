"""A worker is killed before a refund's response: the next worker inquires, and pays once."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from payintent.gateway_accounts.operations import AddAccount
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.port import SessionReport
from payintent.gateways.simulator import SimulatorGateway
from payintent.merchants.methods_operations import AddPaymentMethod
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from tests.e2e.drill import variables_of
from tests.refunds.requests import ask, capture_of, read
from tests.sandbox.simulator.running import KEY, SECRET, running_simulator
from tests.support import processes
from tests.support.arrange import payment_of, select
from tests.support.fakes import FakeGateway
from tests.support.http_server import clean_up
from tests.support.patience import PATIENCE_S
from tests.support.world import Answer, Api

pytestmark = [pytest.mark.e2e, pytest.mark.full]
_LOOK_S = 0.02
_LEASE_S = 61  # of the service's time: what a dead worker had taken is free by then
_CREDENTIALS = {"api_key": KEY, "signing_secret": SECRET}
_CARD = "4242424242424242"


@dataclass
class Front:
    """A proxy in front of the simulator, which can withhold the responses about refunds."""

    target: str
    url: str = ""
    silent: bool = False
    asked: list[str] = field(default_factory=list[str])
    answered_nobody: int = 0

    async def pass_on(self, request: web.Request) -> web.Response:
        about_refunds = request.path.startswith("/v1/refunds")
        if about_refunds:
            self.asked.append(request.method)
        headers = {"Authorization": request.headers["Authorization"],
                   "Content-Type": "application/json"}  # fmt: skip
        async with (
            aiohttp.ClientSession() as http,
            http.request(
                request.method, self.target + request.path, data=await request.read() or None,
                headers=headers
            ) as answer,
        ):  # fmt: skip
            body = await answer.read()
        if about_refunds and self.silent:
            self.answered_nobody += 1
            await asyncio.Event().wait()  # until the caller is gone
        return web.Response(status=answer.status, body=body, content_type="application/json")


@pytest.fixture
async def front() -> AsyncIterator[Front]:
    with running_simulator() as target:
        front = Front(target)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", front.pass_on)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        front.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield front
        await clean_up(runner)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """The simulator's callbacks are lost, so all knowledge comes from a worker's inquiries."""
    return settings.model_copy(update={"api_base": "http://127.0.0.1:1/v1"})


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    http = GatewayHttpClient(settings.gateway_timeout_s, settings.gateway_answer_bytes_max)
    service = await open_service(settings, {"fake": gateway, "simulator": SimulatorGateway(http)})
    yield service
    await service.close()
    await http.close()


async def paid_by_card(api: Api, front: Front) -> Answer:
    """Pay a payment of 1590.00 THB at the simulator, as a buyer does."""
    world = api.world
    adding = AddAccount(provider="simulator", base_url=front.url, credentials=_CREDENTIALS)
    account_id = (await world.perform(adding)).id
    method = await world.perform(
        AddPaymentMethod(
            merchant_id=world.merchant_id,
            account_id=account_id,
            kind="card",
            label="Card",
            currencies=["THB"],
        )
    )
    created = await api.create()
    selected = await select(api, created, payment_method_id=method.id)
    url = selected.json["next_action"]["redirect"]["url"]
    async with (
        aiohttp.ClientSession() as buyer,
        buyer.post(url, data={"card": _CARD}, allow_redirects=False) as paid,
    ):
        assert paid.status == 303
    await _learn(api, created, account_id)
    return created


async def _learn(api: Api, created: Answer, account_id: int) -> None:
    """Inquire about the session at the gateway, as the janitor does."""
    world = api.world
    seen = await world.read(await payment_of(api, created))
    account = await world.service.accounts.get(account_id)
    gateway = world.service.accounts.gateway("simulator")
    assert seen.session is not None
    assert account is not None
    assert gateway is not None
    report = await gateway.inquire(account, seen.session.gateway_ref)
    assert isinstance(report, SessionReport)
    await world.report(seen.payment, seen.session.id, report)
    assert await world.status(seen.payment) == "PAID"


@contextmanager
def worker(settings: Settings, folder: Path, name: str) -> Iterator[processes.Process]:
    """Run a worker, which is killed at the end if it is still running."""
    with (folder / f"{name}.log").open("wb") as output:
        running = processes.start(
            *("payintent", "worker", "--processes", "1"),
            env=os.environ | variables_of(settings),
            output=output,
        )
    try:
        yield running
    finally:
        running.kill()
        running.wait(PATIENCE_S)


async def until(reached: Callable[[], Awaitable[bool]], running: processes.Process) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not await reached():
        assert running.poll() is None, "the worker has ended by itself"
        assert time.monotonic() < deadline
        await asyncio.sleep(_LOOK_S)


async def test_a_refund_is_paid_once_if_its_worker_is_killed_before_the_response(
    api: Api, front: Front, tmp_path: Path
) -> None:
    settings, world = api.world.service.settings, api.world
    created = await paid_by_card(api, front)
    refund = await ask(api, created, amount="90.00")
    front.silent = True

    async def done_unanswered() -> bool:
        return front.answered_nobody == 1

    with worker(settings, tmp_path, "first") as first:
        await until(done_unanswered, first)
        first.send_signal(signal.SIGKILL)
        first.wait(PATIENCE_S)
    [row] = await world.rows("SELECT status, step FROM refund")
    assert (row["status"], row["step"]) == ("PENDING", "sent")
    assert front.asked == ["POST"]

    front.silent = False
    await world.move_clock(_LEASE_S)

    async def settled() -> bool:
        return (await read(api, refund.json["id"])).json["status"] != "PENDING"

    with worker(settings, tmp_path, "second") as second:
        await until(settled, second)
    assert front.asked == ["POST", "GET"]
    assert (await read(api, refund.json["id"])).json["status"] == "SUCCEEDED"
    seen = (await api.get(created.json["id"])).json
    assert (seen["status"], seen["refunded_amount"]) == ("PARTIALLY_REFUNDED", "90.00")
    assert await capture_of(api, created) == (159000, 9000, 0)
