"""If a worker is killed before the response to a refund, the next worker inquires about it."""

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
from tests.refunds.requests import get_refund, post_refund, read_capture
from tests.sandbox.simulator.simulator_setup import KEY, SECRET, running_simulator
from tests.support import processes
from tests.support.arrange import payment_of, select
from tests.support.fakes import FakeGateway
from tests.support.http_server import clean_up
from tests.support.timeouts import PATIENCE_S
from tests.support.world import Answer, Api

pytestmark = [pytest.mark.e2e, pytest.mark.full]
_LOOK_S = 0.02
_LEASE_S = 61  # of the service's clock: the leases of a dead worker have expired by then
_CREDENTIALS = {"api_key": KEY, "signing_secret": SECRET}
_CARD = "4242424242424242"


@dataclass
class Proxy:
    """A proxy for the simulator that can withhold its responses about refunds."""

    target: str
    url: str = ""
    is_withholding: bool = False
    methods: list[str] = field(default_factory=list[str])  # of requests about refunds
    withheld_count: int = 0

    async def forward(self, request: web.Request) -> web.Response:
        is_about_refunds = request.path.startswith("/v1/refunds")
        if is_about_refunds:
            self.methods.append(request.method)
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
        if is_about_refunds and self.is_withholding:
            self.withheld_count += 1
            await asyncio.Event().wait()  # until the caller disconnects
        return web.Response(status=answer.status, body=body, content_type="application/json")


@pytest.fixture
async def simulator_proxy() -> AsyncIterator[Proxy]:
    with running_simulator() as target:
        simulator_proxy = Proxy(target)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", simulator_proxy.forward)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        simulator_proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield simulator_proxy
        await clean_up(runner)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Make the simulator's callbacks fail, so that workers depend on inquiries."""
    return settings.model_copy(update={"api_base": "http://127.0.0.1:1/v1"})


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    http = GatewayHttpClient(settings.gateway_timeout_s, settings.gateway_answer_bytes_max)
    service = await open_service(settings, {"fake": gateway, "simulator": SimulatorGateway(http)})
    yield service
    await service.close()
    await http.close()


async def pay_by_card(api: Api, simulator_proxy: Proxy) -> Answer:
    """Create a payment of 1590.00 THB, and pay it at the simulator like a buyer."""
    world = api.world
    operation = AddAccount(
        provider="simulator", base_url=simulator_proxy.url, credentials=_CREDENTIALS
    )
    account_id = (await world.perform(operation)).id
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
    selection = await select(api, created, payment_method_id=method.id)
    url = selection.json["next_action"]["redirect"]["url"]
    async with (
        aiohttp.ClientSession() as buyer,
        buyer.post(url, data={"card": _CARD}, allow_redirects=False) as response,
    ):
        assert response.status == 303
    await _apply_inquiry(api, created, account_id)
    return created


async def _apply_inquiry(api: Api, created: Answer, account_id: int) -> None:
    """Inquire about the session at the gateway, and apply its report."""
    world = api.world
    stored = await world.read(await payment_of(api, created))
    account = await world.service.accounts.get(account_id)
    gateway = world.service.accounts.gateway("simulator")
    assert stored.session is not None
    assert account is not None
    assert gateway is not None
    report = await gateway.inquire(account, stored.session.gateway_ref)
    assert isinstance(report, SessionReport)
    await world.report(stored.payment, stored.session.id, report)
    assert await world.status(stored.payment) == "PAID"


@contextmanager
def running_worker(settings: Settings, folder: Path, name: str) -> Iterator[processes.Process]:
    """Run a worker, and kill it at the end if it is still running."""
    with (folder / f"{name}.log").open("wb") as output:
        process = processes.start(
            *("payintent", "worker", "--processes", "1"),
            env=os.environ | variables_of(settings),
            output=output,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)


async def wait_until(condition: Callable[[], Awaitable[bool]], process: processes.Process) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not await condition():
        assert process.poll() is None, "the worker ended unexpectedly"
        assert time.monotonic() < deadline
        await asyncio.sleep(_LOOK_S)


async def test_a_refund_is_paid_once_if_its_worker_is_killed_before_the_response(
    api: Api, simulator_proxy: Proxy, tmp_path: Path
) -> None:
    settings, world = api.world.service.settings, api.world
    created = await pay_by_card(api, simulator_proxy)
    refund = await post_refund(api, created, amount="90.00")
    simulator_proxy.is_withholding = True

    async def is_response_withheld() -> bool:
        return simulator_proxy.withheld_count == 1

    with running_worker(settings, tmp_path, "first") as first:
        await wait_until(is_response_withheld, first)
        first.send_signal(signal.SIGKILL)
        first.wait(PATIENCE_S)
    [row] = await world.rows("SELECT status, step FROM refund")
    assert (row["status"], row["step"]) == ("PENDING", "sent")
    assert simulator_proxy.methods == ["POST"]

    simulator_proxy.is_withholding = False
    await world.move_clock(_LEASE_S)

    async def is_settled() -> bool:
        return (await get_refund(api, refund.json["id"])).json["status"] != "PENDING"

    with running_worker(settings, tmp_path, "second") as second:
        await wait_until(is_settled, second)
    assert simulator_proxy.methods == ["POST", "GET"]
    assert (await get_refund(api, refund.json["id"])).json["status"] == "SUCCEEDED"
    payment = (await api.get(created.json["id"])).json
    assert (payment["status"], payment["refunded_amount"]) == ("PARTIALLY_REFUNDED", "90.00")
    assert await read_capture(api, created) == (159000, 9000, 0)
