"""A request that waits for an external host does not hold a slot.

The external hosts accept connections and never respond. There are only two slots per lane, so
buyers or operators are blocked if a waiting request holds its slot.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

import payintent
from payintent.checkout.pictures.cache import WAITERS_PER_PICTURE_MAX
from payintent.checkout.pictures.cache import WAITING_PER_MERCHANT_MAX as PICTURES
from payintent.gateway_accounts.buyer_calls import WAITING_PER_MERCHANT_MAX
from payintent.gateways.port import AccountCheck, SessionReport
from payintent.http import egress
from payintent.runtime.settings import Settings
from tests.console.operator_browser import Visitor
from tests.operators.operator_calls import request_operation
from tests.support.fakes import FakeGateway
from tests.support.tcp_server import TcpServer
from tests.support.timeouts import PATIENCE_S, wait_until
from tests.support.world import Answer, Api, World

pytestmark = pytest.mark.full

_SLOTS = 2
_CLIENTS = 6 * _SLOTS
_CLIENT = re.compile(
    r"aiohttp\.ClientSession\(|HttpSession\(|smtplib\.SMTP\(|socket\.getaddrinfo\(|asyncio\.open_connection\("
)
#: Modules that open a client, with the caller that releases the slot.
_CALLERS = {
    "checkout/pictures/fetch.py": "checkout/pictures/cache.py",
    "evm/chain_reader.py": "evm/rpc.py",
    "evm/signer.py": "evm/rpc.py",
}
#: Modules that open a client outside of requests.
_WITHOUT_REQUESTS = {"runtime/processes/handover.py", "runtime/http_session.py"}


@pytest.fixture
def wait_s() -> float:
    """How long a request waits for a slot. The default exceeds the duration of any test."""
    return 60.0


@pytest.fixture
def settings(settings: Settings, hanging: "HangingHost", wait_s: float) -> Settings:
    return settings.model_copy(
        update={
            "requests_max": _SLOTS,
            "request_wait_s": wait_s,
            "oidc_issuer": hanging.base,
            "oidc_client_id": "console",
            "oidc_client_secret": SecretStr("secret"),
            "oidc_roles": "staff=viewer",
        }
    )


class HangingHost:
    """A host that accepts connections, reads, and never responds."""

    def __init__(self) -> None:
        self.request_lines: list[bytes] = []
        self.base = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.request_lines.append(await reader.readline())
        while await reader.read(4_096):
            pass
        writer.close()  # the client has disconnected; Python 3.13 reports a writer that stays open


@pytest.fixture
async def hanging() -> AsyncIterator[HangingHost]:
    host = HangingHost()
    server = TcpServer(host.serve)
    await server.start()
    host.base = f"http://127.0.0.1:{server.port}"
    yield host
    await server.stop()


@asynccontextmanager
async def pending_requests(
    requests: int, send: Callable[[int], Awaitable[Answer]]
) -> AsyncIterator[list[asyncio.Task[Answer]]]:
    """Keep this many requests pending while the block runs."""
    tasks = [asyncio.create_task(send(number)) for number in range(requests)]  # type: ignore[arg-type]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def check_buyers_are_served(api: Api, checkout_id: str) -> None:
    """Read a checkout and its page concurrently, as often as there are slots."""
    paths = [f"/v1/checkout/{checkout_id}", f"/c/{checkout_id}"] * _SLOTS
    async with asyncio.timeout(PATIENCE_S):
        answers = await asyncio.gather(*(api.send("GET", path) for path in paths))
    assert {answer.status for answer in answers} == {200}


async def create_checkouts(api: Api, count: int, **changes: Any) -> list[str]:
    created = [await api.create(**changes) for _ in range(count)]
    return [item.json["checkout_id"] for item in created]


async def test_a_hanging_gateway_does_not_block_other_buyers(
    api: Api, gateway: FakeGateway
) -> None:
    gateway.hold = asyncio.Event()
    [served_id, *waiting_ids] = await create_checkouts(api, _CLIENTS + 1)

    async def select(number: int) -> Answer:
        body = {"payment_method_id": api.world.card}
        return await api.send("POST", f"/v1/checkout/{waiting_ids[number]}/quotes", json=body)

    async with pending_requests(_CLIENTS, select) as selecting:
        await wait_until(
            lambda: len(gateway.created) == _CLIENTS, "all requests wait for the gateway"
        )
        await check_buyers_are_served(api, served_id)
        gateway.hold.set()
        assert {item.status for item in await asyncio.gather(*selecting)} == {200}


async def test_a_hanging_inquiry_before_a_method_change_does_not_block_other_buyers(
    api: Api, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    [served_id, *waiting_ids] = await create_checkouts(api, _CLIENTS + 1)
    for checkout_id in waiting_ids:
        body = {"payment_method_id": api.world.card}
        await api.send("POST", f"/v1/checkout/{checkout_id}/quotes", json=body)
    answer, inquiries = asyncio.Event(), 0

    async def inquire(*_: object) -> SessionReport:
        nonlocal inquiries
        inquiries += 1
        await answer.wait()
        return gateway.answer_inquire  # type: ignore[return-value]

    monkeypatch.setattr(gateway, "inquire", inquire)

    async def change(number: int) -> Answer:
        form = {"method": str(api.world.transfer)}
        return await api.send("POST", f"/c/{waiting_ids[number]}/select", data=form)

    async with pending_requests(_CLIENTS, change) as changing:
        await wait_until(lambda: inquiries == _CLIENTS, "all requests wait for the gateway")
        await check_buyers_are_served(api, served_id)
        answer.set()
        assert {item.status for item in await asyncio.gather(*changing)} <= {200, 303}


async def test_a_hanging_image_host_does_not_block_buyers(api: Api, hanging: HangingHost) -> None:
    pictures = api.world.service.pictures
    [served_id] = await create_checkouts(api, 1)

    async def get(number: int) -> Answer:
        name = pictures.make_name(f"{hanging.base}/{number}.png", api.world.merchant_id)
        return await api.send("GET", f"/c/static/pictures/{name}.webp")

    async with pending_requests(PICTURES, get) as getting:
        await wait_until(lambda: bool(hanging.request_lines), "a fetch is in progress")
        await check_buyers_are_served(api, served_id)
        assert {item.status for item in await asyncio.gather(*getting)} == {404}


@pytest.mark.parametrize("wait_s", [2.5])  # a picture is fetched for longer
async def test_hanging_hosts_of_a_merchant_do_not_affect_buyers_of_another_merchant(
    api: Api, gateway: FakeGateway, hanging: HangingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.hold = asyncio.Event()
    responsive_gateway = FakeGateway()

    async def create_session(*arguments: Any) -> Any:
        is_hanging = arguments[1].description.startswith("Nimbus Books")
        return await FakeGateway.create_session(
            gateway if is_hanging else responsive_gateway, *arguments
        )

    monkeypatch.setattr(gateway, "create_session", create_session)
    waiting_ids = await create_checkouts(api, _CLIENTS)
    pictures = api.world.service.pictures

    async def send(number: int) -> Answer:
        if number < _CLIENTS:
            body = {"payment_method_id": api.world.card}
            path = f"/v1/checkout/{waiting_ids[number]}/quotes"
            while (answer := await api.send("POST", path, json=body)).status == 503:
                pass  # shed on a slow machine, because all requests are sent at once
            return answer
        name = pictures.make_name(f"{hanging.base}/{number}.png", api.world.merchant_id)
        return await api.send("GET", f"/c/static/pictures/{name}.webp")

    second_merchant = await api.world.add_merchant()
    world = replace(
        api.world, merchant_id=second_merchant.merchant.id, api_key=second_merchant.api_key
    )
    async with pending_requests(3 * _CLIENTS, send), Api(api.base, world) as second_api:
        await wait_until(
            lambda: len(gateway.created) == _CLIENTS and hanging.request_lines, "all requests wait"
        )
        for _ in range(_CLIENTS):
            [checkout_id] = await create_checkouts(second_api, 1)
            await check_buyers_are_served(second_api, checkout_id)
            quotes = await second_api.send("GET", f"/v1/checkout/{checkout_id}/quotes")
            body = {"payment_method_id": quotes.json["quotes"][0]["payment_method_id"]}
            path = f"/v1/checkout/{checkout_id}/quotes"
            assert (await second_api.send("POST", path, json=body)).status == 200
        gateway.hold.set()


async def test_the_number_of_requests_that_wait_for_an_image_is_limited(
    api: Api, hanging: HangingHost
) -> None:
    name = api.world.service.pictures.make_name(f"{hanging.base}/book.png", 1)
    path = f"/c/static/pictures/{name}.webp"
    async with pending_requests(
        WAITERS_PER_PICTURE_MAX, lambda _: api.send("GET", path)
    ) as getting:
        await wait_until(lambda: bool(hanging.request_lines), "the fetch is in progress")
        for _ in range(_SLOTS):
            await api.send("GET", "/c/static/flags/x")  # all earlier requests have started
        answer = await asyncio.wait_for(api.send("GET", path), PATIENCE_S)
        assert answer.status == 404
        assert not any(item.done() for item in getting)
    assert len(hanging.request_lines) == 1


async def test_waiting_buyers_beyond_the_limit_of_a_merchant_are_refused_immediately(
    api: Api, gateway: FakeGateway
) -> None:
    gateway.hold = asyncio.Event()
    waiting_ids = await create_checkouts(api, WAITING_PER_MERCHANT_MAX + 1)

    async def select(number: int) -> Answer:
        body = {"payment_method_id": api.world.card}
        return await api.send("POST", f"/v1/checkout/{waiting_ids[number]}/quotes", json=body)

    async with pending_requests(WAITING_PER_MERCHANT_MAX, select) as selecting:
        await wait_until(
            lambda: len(gateway.created) == WAITING_PER_MERCHANT_MAX, "all requests wait"
        )
        rejection = await asyncio.wait_for(select(WAITING_PER_MERCHANT_MAX), PATIENCE_S)
        assert (rejection.status, rejection.json["code"]) == (429, "RATE_LIMITED")
        assert rejection.headers["Retry-After"] == "1"
        gateway.hold.set()
        assert {item.status for item in await asyncio.gather(*selecting)} == {200}


async def test_a_hanging_account_check_does_not_block_other_operators(
    operator: Api, world: World, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks, answer = 0, asyncio.Event()

    async def check(_: object) -> AccountCheck:
        nonlocal checks
        checks += 1
        await answer.wait()
        return gateway.answer_check

    monkeypatch.setattr(gateway, "check_account", check)
    token = await world.operator_token()

    async def send(_: int) -> Answer:
        return await request_operation(
            operator, token, "account.check", {"account_id": world.account_id}
        )

    async with pending_requests(_CLIENTS, send) as checking:
        await wait_until(lambda: checks == _CLIENTS, "all requests wait for the gateway")
        sign_in = await asyncio.wait_for(operator.send("GET", "/sign-in"), PATIENCE_S)
        assert sign_in.status == 200
        answer.set()
        await asyncio.gather(*checking)


async def test_a_hanging_identity_provider_does_not_block_operators(
    operator: Api, hanging: HangingHost
) -> None:
    async with pending_requests(_CLIENTS, lambda _: operator.send("GET", "/sign-in/oidc")):
        await wait_until(lambda: bool(hanging.request_lines), "the provider has a request")
        for _ in range(_SLOTS):
            sign_in = await asyncio.wait_for(Visitor(operator).get("/sign-in"), PATIENCE_S)
            assert sign_in.status == 200


async def test_a_hanging_name_server_does_not_block_operators(
    operator: Api, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups, answer = 0, asyncio.Event()

    async def never(*_: object) -> list[str]:
        nonlocal lookups
        lookups += 1
        await answer.wait()
        return []

    monkeypatch.setattr(egress.CheckedResolver, "_query_system", never)
    token = await world.operator_token()

    async def send(number: int) -> Answer:
        fields = {"name": f"Shop {number}", "callback_url": "https://shop.example.com/hook"}
        return await request_operation(operator, token, "merchant.create", fields)

    async with pending_requests(_CLIENTS, send):
        await wait_until(lambda: lookups == _CLIENTS, "all requests wait for the name server")
        sign_in = await asyncio.wait_for(operator.send("GET", "/sign-in"), PATIENCE_S)
        assert sign_in.status == 200
        answer.set()


def test_every_client_of_external_hosts_releases_the_slot() -> None:
    root = Path(payintent.__file__).parent
    clients = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if _CLIENT.search(path.read_text()) and path.relative_to(root).parts[0] != "cli"
    }
    assert len(clients) > 5
    for client in sorted(clients - _WITHOUT_REQUESTS):
        assert "release_slot()" in (root / _CALLERS.get(client, client)).read_text(), client
