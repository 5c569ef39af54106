"""deploy/cells/haproxy.cfg: a public API host in front of two installations."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import aiohttp
import pytest

from drills.client import Client, Target
from payintent.core.access import make_api_key
from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.docs.parse_pages import page
from tests.support.databases import Databases
from tests.support.fakes import FakeGateway
from tests.support.haproxy import InstallationProxy
from tests.support.running_service import serving_api
from tests.support.timeouts import PATIENCE_S
from tests.support.world import Answer, Api, make_world

pytestmark = pytest.mark.full

_BODY = {"currency": "THB", "amount": "1590.00", "payer_uid": "buyer-1"}


class Front:
    """Two installations that share a public address, and a third installation that can join."""

    def __init__(self, proxy: InstallationProxy, apis: dict[str, Api]) -> None:
        self.proxy = proxy
        self.apis = apis
        self._client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))

    async def close(self) -> None:
        await self._client.close()

    async def send(self, authorization: str | None, path: str = "/v1/payments") -> Answer:
        headers = {} if authorization is None else {"Authorization": authorization}
        async with self._client.get(self.proxy.url + path, headers=headers) as answer:
            return Answer(answer.status, await answer.read(), answer.headers)

    async def create(self, mark: str) -> Answer:
        return await self.post(mark, "/v1/payments", _BODY)

    async def post(self, mark: str, path: str, body: Mapping[str, object]) -> Answer:
        headers = self.apis[mark].bearer() | {"Idempotency-Key": str(uuid4())}
        async with self._client.post(self.proxy.url + path, json=body, headers=headers) as answer:
            return Answer(answer.status, await answer.read(), answer.headers)

    async def logged_calls(self, count: int) -> list[dict[str, object]]:
        """Wait until the proxy has logged `count` requests, which it does after the response."""

        def lines() -> list[str]:
            return [line for line in self.proxy.log.splitlines() if line.startswith("{")]

        async with asyncio.timeout(PATIENCE_S):
            while len(lines()) < count:
                await asyncio.sleep(0.02)
        return [json.loads(line) for line in lines()]

    def key(self, mark: str) -> str:
        return self.apis[mark].world.api_key

    def ports(self, *marks: str) -> dict[str, list[int]]:
        return {mark: [urlsplit(self.apis[mark].base).port or 0] for mark in marks}


@pytest.fixture
async def front(settings: Settings, databases: Databases, tmp_path: Path) -> AsyncIterator[Front]:
    async with AsyncExitStack() as stack:
        apis: dict[str, Api] = {}
        for mark in ("a1", "b1", "Zz"):
            installation = _serve_installation(settings, databases, mark)
            apis[mark] = await stack.enter_async_context(installation)
        ports = {mark: [urlsplit(apis[mark].base).port or 0] for mark in ("a1", "b1")}
        proxy = await stack.enter_async_context(InstallationProxy(tmp_path, ports))
        front = Front(proxy, apis)
        yield front
        await front.close()


@asynccontextmanager
async def _serve_installation(
    settings: Settings, databases: Databases, mark: str
) -> AsyncIterator[Api]:
    """Serve an installation with a separate database and merchant."""
    url = databases.take()
    own_settings = settings.model_copy(update={"database_url": url, "key_mark": mark})
    gateway = FakeGateway()
    service = await open_service(own_settings, {"fake": gateway})
    async with serving_api(own_settings, await make_world(service, gateway)) as api:
        yield api
    await service.close()
    databases.give_back(url)


async def test_a_request_is_routed_to_the_installation_of_its_key(front: Front) -> None:
    for mark, other_mark in (("a1", "b1"), ("b1", "a1")):
        created = await front.create(mark)
        assert created.status == 201
        path = f"/v1/payments/{created.json['id']}"
        assert (await front.send(f"Bearer {front.key(mark)}", path)).status == 200
        assert (await front.send(f"Bearer {front.key(other_mark)}", path)).status == 404
    for spelling in ("bearer  {}", "BEARER {} "):
        assert (await front.send(spelling.format(front.key("b1")))).status == 200


async def test_a_request_without_a_valid_key_gets_the_same_401_as_from_the_service(
    front: Front,
) -> None:
    expected = await front.apis["a1"].send("GET", "/v1/payments")
    unknown = make_api_key("sk_live", "Zz345678", "A" * 43).text
    wrong_case = make_api_key("sk_live", "A1345678", "A" * 43).text
    unknown_of_a1 = make_api_key("sk_live", "a1345678", "A" * 43).text
    for authorization in (
        *(None, "Bearer", "Basic abc", f"Bearer {unknown}", f"Bearer {wrong_case}"),
        *(f"Bearer {unknown_of_a1}", "Bearer sk_live_a1_x", f"Bearer {front.key('a1')[:-1]}"),
    ):
        rejection = await front.send(authorization)
        assert (rejection.status, rejection.json) == (401, expected.json), authorization
        for name in ("WWW-Authenticate", "Content-Type"):
            assert rejection.headers[name] == expected.headers[name]
    servers = Counter(call["server"] for call in await front.logged_calls(8))
    assert servers == {"unknown/<NOSRV>": 5, "a1/api1": 3}


async def test_keys_and_checkout_ids_are_not_logged(front: Front) -> None:
    await front.create("a1")
    unknown = make_api_key("sk_live", "Zz345678", "S" * 43).text
    await front.send(f"Bearer {unknown}", "/v1/payments?key=" + unknown)
    await front.send(f"Bearer my_sk_{unknown}_x")
    await front.send(None, "/v1/checkout/cs_0123456789abcdeF/status")
    calls = await front.logged_calls(4)
    assert Counter((call["method"], call["path"], call["status"]) for call in calls) == {
        ("POST", "/v1/payments", 201): 1,
        ("GET", "/v1/payments", 401): 2,
        ("GET", "/v1/checkout/cs_***/status", 401): 1,
    }
    [created] = [call for call in calls if call["method"] == "POST"]
    assert (created["mark"], created["server"]) == ("a1", "a1/api1")
    assert created["request_id"]
    text = front.proxy.log
    for secret in (front.key("a1"), unknown, "S" * 10, "0123456789abcdeF"):
        assert secret not in text
    assert front.key("a1").rpartition("_")[2] not in text


async def test_an_unavailable_installation_returns_503_and_the_rest_keep_working(
    front: Front,
) -> None:
    front.proxy.configure({"a1": [1], **front.ports("b1")})  # nothing listens on port 1
    await front.proxy.reload()
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await front.create("a1")).status != 503:
            await asyncio.sleep(0.1)
    assert answer.json["code"] == "SERVICE_UNAVAILABLE"
    assert answer.headers["Retry-After"] == "1"
    assert (await front.create("b1")).status == 201


async def test_a_process_that_is_not_ready_is_skipped(front: Front) -> None:
    front.proxy.configure({"a1": [1, *front.ports("a1")["a1"]]})
    await front.proxy.reload()
    async with asyncio.timeout(PATIENCE_S):
        while '"server":"a1/api2"' not in front.proxy.log:
            assert (await front.create("a1")).status == 201
    for _ in range(10):
        assert (await front.create("a1")).status == 201


async def test_a_request_without_an_idempotency_key_is_not_resent(front: Front) -> None:
    """If a killed process has handled the request, a test clock would advance twice."""
    requests: list[str] = []

    async def drop_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, path, _ = (await reader.readline()).decode().split()
        if path == "/readyz":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
        else:
            requests.append(f"{method} {path}")
        writer.close()

    server = await asyncio.start_server(drop_request, "127.0.0.1", 0)
    async with server:
        front.proxy.configure({"a1": [server.sockets[0].getsockname()[1]]})
        await front.proxy.reload()
        async with asyncio.timeout(PATIENCE_S):
            while (await front.create("a1")).status != 502:
                await asyncio.sleep(0.1)  # the previous process may still accept a connection
        created = len(requests)
        assert created > 1
        assert (await front.post("a1", "/v1/test/clock/advance", {"seconds": 60})).status == 502
    assert requests[created:] == ["POST /v1/test/clock/advance"]


async def test_a_third_installation_joins_on_reload_without_failed_requests(
    front: Front,
) -> None:
    assert (await front.create("Zz")).status == 401
    has_ended = asyncio.Event()

    async def load(mark: str) -> list[int]:
        """List payments over a reused connection, without retries, and return the statuses."""
        client = Client(Target("127.0.0.1", front.proxy.port), PATIENCE_S)
        headers = front.apis[mark].bearer()
        statuses: list[int] = []
        while not has_ended.is_set():
            reply = await client.call("GET", "/v1/payments", headers)
            statuses.append(reply.status)
            await asyncio.sleep(0.01)
        await client.close()
        return statuses

    async def join() -> None:
        try:
            for marks in 3 * (("a1", "b1", "Zz"), ("a1", "b1")):
                front.proxy.configure(front.ports(*marks))
                await front.proxy.reload()
                status = 201 if "Zz" in marks else 401
                async with asyncio.timeout(PATIENCE_S):
                    while (await front.create("Zz")).status != status:
                        await asyncio.sleep(0.05)
        finally:
            has_ended.set()

    loads, _ = await asyncio.gather(
        asyncio.gather(*(load(mark) for mark in 4 * ("a1", "b1"))), join()
    )
    assert {status for statuses in loads for status in statuses} == {200}


def test_the_configuration_uses_no_lua_and_matches_the_limits_of_the_service() -> None:
    text = page("deploy/cells/haproxy.cfg")
    assert "lua" not in text
    assert "expose-fd listeners" in text
    assert "option idle-close-on-response" in text
    header_s = int(Settings.model_fields["header_timeout_s"].default)
    assert re.search(rf"timeout http-request {header_s}s", text)
    assert re.search(r"    user haproxy\n    group haproxy\n", text)
    marks = re.findall(r"use_backend (\w+) if \{ var\(txn\.mark\) -m str (\w+) \}", text)
    assert [backend for backend, mark in marks if backend == mark] == ["a1", "b1"]
