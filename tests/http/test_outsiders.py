"""A request that waits for an external host does not hold a slot that others need.

The external hosts accept connections and never respond. With two slots per lane, a request that
holds its slot is detected.
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
from tests.console.visitor import Visitor
from tests.operators.operator_calls import ask
from tests.support.fakes import FakeGateway
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.tcp_server import TcpServer
from tests.support.world import Answer, Api, World

pytestmark = pytest.mark.full

_SLOTS = 2
_CROWD = 6 * _SLOTS
_CLIENT = re.compile(
    r"aiohttp\.ClientSession\(|HttpSession\(|smtplib\.SMTP\(|socket\.getaddrinfo\(|asyncio\.open_connection\("
)
#: Modules that open a client and whose callers release the slot, or that no request runs.
_ELSEWHERE = {
    "checkout/pictures/fetch.py": "checkout/pictures/cache.py",
    "evm/chain_reader.py": "evm/rpc.py",
    "evm/signer.py": "evm/rpc.py",
}
_OF_A_PROCESS = {"runtime/processes/handover.py", "runtime/http_session.py"}


@pytest.fixture
def wait_s() -> float:
    """The time that a request waits for a slot, which by default exceeds any test."""
    return 60.0


@pytest.fixture
def settings(settings: Settings, hanging: "Hanging", wait_s: float) -> Settings:
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


class Hanging:
    """A host that accepts connections, reads, and never responds."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.base = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append(await reader.readline())
        while await reader.read(4_096):
            pass
        writer.close()  # the client has given up; Python 3.13 reports a writer that stays open


@pytest.fixture
async def hanging() -> AsyncIterator[Hanging]:
    host = Hanging()
    server = TcpServer(host.serve)
    await server.start()
    host.base = f"http://127.0.0.1:{server.port}"
    yield host
    await server.stop()


@asynccontextmanager
async def waiting(
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


async def buyers_are_served(api: Api, checkout_id: str) -> None:
    """Read a checkout and its quotes concurrently, as often as there are slots."""
    paths = [f"/v1/checkout/{checkout_id}", f"/c/{checkout_id}"] * _SLOTS
    async with asyncio.timeout(PATIENCE_S):
        answers = await asyncio.gather(*(api.send("GET", path) for path in paths))
    assert {answer.status for answer in answers} == {200}


async def checkouts(api: Api, count: int, **changes: Any) -> list[str]:
    created = [await api.create(**changes) for _ in range(count)]
    return [item.json["checkout_id"] for item in created]


async def test_a_gateway_that_hangs_takes_no_slot_of_another_buyer(
    api: Api, gateway: FakeGateway
) -> None:
    gateway.hold = asyncio.Event()
    [other, *ours] = await checkouts(api, _CROWD + 1)

    async def select(number: int) -> Answer:
        body = {"payment_method_id": api.world.card}
        return await api.send("POST", f"/v1/checkout/{ours[number]}/quotes", json=body)

    async with waiting(_CROWD, select) as selecting:
        await wait_until(lambda: len(gateway.created) == _CROWD, "all wait for the gateway")
        await buyers_are_served(api, other)
        gateway.hold.set()
        assert {item.status for item in await asyncio.gather(*selecting)} == {200}


async def test_a_gateway_that_hangs_when_asked_before_a_change_takes_no_slot(
    api: Api, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    [other, *ours] = await checkouts(api, _CROWD + 1)
    for checkout_id in ours:
        body = {"payment_method_id": api.world.card}
        await api.send("POST", f"/v1/checkout/{checkout_id}/quotes", json=body)
    answer, asked = asyncio.Event(), 0

    async def inquire(*_: object) -> SessionReport:
        nonlocal asked
        asked += 1
        await answer.wait()
        return gateway.answer_inquire  # type: ignore[return-value]

    monkeypatch.setattr(gateway, "inquire", inquire)

    async def change(number: int) -> Answer:
        form = {"method": str(api.world.transfer)}
        return await api.send("POST", f"/c/{ours[number]}/select", data=form)

    async with waiting(_CROWD, change) as changing:
        await wait_until(lambda: asked == _CROWD, "all wait for the gateway")
        await buyers_are_served(api, other)
        answer.set()
        assert {item.status for item in await asyncio.gather(*changing)} <= {200, 303}


async def test_a_host_of_pictures_that_hangs_takes_no_slot_of_a_buyer(
    api: Api, hanging: Hanging
) -> None:
    pictures = api.world.service.pictures
    [other] = await checkouts(api, 1)

    async def get(number: int) -> Answer:
        name = pictures.make_name(f"{hanging.base}/{number}.png", api.world.merchant_id)
        return await api.send("GET", f"/c/static/pictures/{name}.webp")

    async with waiting(PICTURES, get) as getting:
        await wait_until(lambda: bool(hanging.asked), "a fetch is under way")
        await buyers_are_served(api, other)
        assert {item.status for item in await asyncio.gather(*getting)} == {404}


@pytest.mark.parametrize("wait_s", [0.5])
async def test_while_gateway_and_pictures_of_one_merchant_hang_no_buyer_of_another_is_shed(
    api: Api, gateway: FakeGateway, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.hold = asyncio.Event()
    answers_at_once = FakeGateway()

    async def create_session(*asked: Any) -> Any:
        ours = asked[1].description.startswith("Nimbus Books")
        return await FakeGateway.create_session(gateway if ours else answers_at_once, *asked)

    monkeypatch.setattr(gateway, "create_session", create_session)
    ours = await checkouts(api, _CROWD)
    pictures = api.world.service.pictures

    async def send(number: int) -> Answer:
        if number < _CROWD:
            body = {"payment_method_id": api.world.card}
            return await api.send("POST", f"/v1/checkout/{ours[number]}/quotes", json=body)
        name = pictures.make_name(f"{hanging.base}/{number}.png", api.world.merchant_id)
        return await api.send("GET", f"/c/static/pictures/{name}.webp")

    new = await api.world.add_merchant()
    world = replace(api.world, merchant_id=new.merchant.id, api_key=new.api_key)
    async with waiting(3 * _CROWD, send), Api(api.base, world) as other:
        await wait_until(lambda: len(gateway.created) == _CROWD and hanging.asked, "all wait")
        for _ in range(_CROWD):
            [checkout_id] = await checkouts(other, 1)
            await buyers_are_served(other, checkout_id)
            quotes = await other.send("GET", f"/v1/checkout/{checkout_id}/quotes")
            body = {"payment_method_id": quotes.json["quotes"][0]["payment_method_id"]}
            path = f"/v1/checkout/{checkout_id}/quotes"
            assert (await other.send("POST", path, json=body)).status == 200
        gateway.hold.set()


async def test_a_picture_whose_host_hangs_has_so_many_waiters(api: Api, hanging: Hanging) -> None:
    name = api.world.service.pictures.make_name(f"{hanging.base}/book.png", 1)
    path = f"/c/static/pictures/{name}.webp"
    async with waiting(WAITERS_PER_PICTURE_MAX, lambda _: api.send("GET", path)) as getting:
        await wait_until(lambda: bool(hanging.asked), "the fetch is under way")
        for _ in range(_SLOTS):
            await api.send("GET", "/c/static/flags/x")  # those before it have begun
        answer = await asyncio.wait_for(api.send("GET", path), PATIENCE_S)
        assert answer.status == 404
        assert not any(item.done() for item in getting)
    assert len(hanging.asked) == 1


async def test_buyers_beyond_the_bound_of_their_merchant_are_answered_at_once(
    api: Api, gateway: FakeGateway
) -> None:
    gateway.hold = asyncio.Event()
    ours = await checkouts(api, WAITING_PER_MERCHANT_MAX + 1)

    async def select(number: int) -> Answer:
        body = {"payment_method_id": api.world.card}
        return await api.send("POST", f"/v1/checkout/{ours[number]}/quotes", json=body)

    async with waiting(WAITING_PER_MERCHANT_MAX, select) as selecting:
        await wait_until(lambda: len(gateway.created) == WAITING_PER_MERCHANT_MAX, "all wait")
        refused = await asyncio.wait_for(select(WAITING_PER_MERCHANT_MAX), PATIENCE_S)
        assert (refused.status, refused.json["code"]) == (429, "RATE_LIMITED")
        assert refused.headers["Retry-After"] == "1"
        gateway.hold.set()
        assert {item.status for item in await asyncio.gather(*selecting)} == {200}


async def test_an_account_whose_gateway_hangs_takes_no_slot_of_another_operator(
    operator: Api, world: World, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer = 0, asyncio.Event()

    async def check(_: object) -> AccountCheck:
        nonlocal asked
        asked += 1
        await answer.wait()
        return gateway.answer_check

    monkeypatch.setattr(gateway, "check_account", check)
    token = await world.operator_token()

    async def send(_: int) -> Answer:
        return await ask(operator, token, "account.check", {"account_id": world.account_id})

    async with waiting(_CROWD, send) as checking:
        await wait_until(lambda: asked == _CROWD, "all wait for the gateway")
        other = await asyncio.wait_for(operator.send("GET", "/sign-in"), PATIENCE_S)
        assert other.status == 200
        answer.set()
        await asyncio.gather(*checking)


async def test_a_provider_of_identities_that_hangs_takes_no_slot(
    operator: Api, hanging: Hanging
) -> None:
    async with waiting(_CROWD, lambda _: operator.send("GET", "/sign-in/oidc")):
        await wait_until(lambda: bool(hanging.asked), "the provider is asked")
        for _ in range(_SLOTS):
            other = await asyncio.wait_for(Visitor(operator).get("/sign-in"), PATIENCE_S)
            assert other.status == 200


async def test_a_name_server_that_hangs_takes_no_slot(
    operator: Api, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer = 0, asyncio.Event()

    async def never(*_: object) -> list[str]:
        nonlocal asked
        asked += 1
        await answer.wait()
        return []

    monkeypatch.setattr(egress.CheckedResolver, "_query_system", never)
    token = await world.operator_token()

    async def send(number: int) -> Answer:
        fields = {"name": f"Shop {number}", "callback_url": "https://shop.example.com/hook"}
        return await ask(operator, token, "merchant.create", fields)

    async with waiting(_CROWD, send):
        await wait_until(lambda: asked == _CROWD, "all wait for the name")
        other = await asyncio.wait_for(operator.send("GET", "/sign-in"), PATIENCE_S)
        assert other.status == 200
        answer.set()


def test_every_client_of_outside_servers_releases_the_slot() -> None:
    root = Path(payintent.__file__).parent
    clients = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if _CLIENT.search(path.read_text()) and path.relative_to(root).parts[0] != "cli"
    }
    assert len(clients) > 5
    for client in sorted(clients - _OF_A_PROCESS):
        assert "release_slot()" in (root / _ELSEWHERE.get(client, client)).read_text(), client
