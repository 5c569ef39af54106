"""Overload: slow bodies, too many connections, and too many concurrent requests."""

import asyncio
import inspect
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from uuid import uuid4

import asyncpg
import pytest
from prometheus_client import REGISTRY
from starlette.routing import Route
from starlette.types import Message

from payintent.http.admission import Admission, LaneName
from payintent.http.listeners import busy_application
from payintent.runtime.settings import Settings
from tests.http.wire import Wire, WireAnswer
from tests.support.arrange import count, document
from tests.support.routes import OPERATOR_ROUTES, ROUTES
from tests.support.timeouts import PATIENCE_S
from tests.support.world import Api

_HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
_BODY = document()
_SLOTS, _QUEUE_LENGTH = 2, 3


@pytest.fixture
def wait_s() -> float:
    """How long a request waits for its slot. The default exceeds the duration of any test."""
    return 60.0


@pytest.fixture
def body_s() -> float:
    """The time limit for a body."""
    return 1.0


@pytest.fixture
def settings(settings: Settings, wait_s: float, body_s: float) -> Settings:
    """Small limits, and short waits for database connections."""
    limits = {
        "request_wait_s": wait_s,
        "body_timeout_s": body_s,
        "requests_max": _SLOTS,
        "requests_waiting_max": _QUEUE_LENGTH,
        "connections_max": 120,
        "database_lock_timeout_ms": 30_000,
        "database_statement_timeout_ms": 30_000,
    }
    return settings.model_copy(update=limits)


def create(api: Api, body: bytes = _BODY, content_length: int | None = None) -> bytes:
    length = len(body) if content_length is None else content_length
    return (
        b"POST /v1/payments HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer %b\r\nIdempotency-Key: %b\r\nContent-Length: %d\r\n\r\n%b"
        % (api.world.api_key.encode(), str(uuid4()).encode(), length, body)
    )


def read_counter(name: str) -> float:
    return REGISTRY.get_sample_value(f"payintent_requests_{name}_total", {"lane": "merchants"}) or 0


@pytest.fixture
async def payment_lock(api: Api) -> AsyncIterator[asyncpg.Connection]:
    """Block the creation of payments until this connection releases its lock."""
    connection = await api.world.open_connection()
    await connection.execute("BEGIN")
    await connection.execute("LOCK TABLE payment IN SHARE MODE")
    yield connection
    if connection.is_in_transaction():
        await connection.execute("ROLLBACK")
    await connection.close()


async def wait_for_blocked_statements(connection: asyncpg.Connection, expected: int) -> None:
    """Wait until this many statements are waiting for the lock."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            blocked = await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
            if blocked == expected:
                return
            await asyncio.sleep(0.01)


async def wait_until_read(api: Api) -> bool:
    """Wait until the service has read all earlier data, by sending a request in another lane."""
    async with Wire(api.base) as wire:
        await wire.send(_HEALTH)
        return await wire.answer() is not None


async def test_a_hundred_slow_clients_time_out_without_using_slots(api: Api) -> None:
    async def drip() -> WireAnswer | None:
        async with Wire(api.base) as wire:
            await wire.send(create(api, b"", content_length=5_000))
            answering = asyncio.create_task(wire.answer())
            while not answering.done():
                await wire.send(b" ")
                await asyncio.sleep(0.05)
            return await answering

    clients = [asyncio.create_task(drip()) for _ in range(100)]
    assert (await api.create()).status == 201  # the slow clients do not hold slots
    answers = await asyncio.gather(*clients)
    assert {answer.status for answer in answers if answer} == {408}
    assert all(answer and answer.headers["connection"] == "close" for answer in answers)
    assert await count(api) == 1


async def test_slow_clients_do_not_hold_database_connections(api: Api) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(50):
            wire = await stack.enter_async_context(Wire(api.base))
            await wire.send(create(api, b"{", content_length=5_000))
        assert await wait_until_read(api)
        pool = api.world.database
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(pool.fetch("SELECT 1") for _ in range(50)))
        active = await api.world.rows(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
            "AND state LIKE 'idle in transaction%'"
        )
        assert active == []
        assert (await api.create()).status == 201


async def test_requests_beyond_the_limits_are_shed_and_the_rest_are_processed(
    api: Api, payment_lock: asyncpg.Connection
) -> None:
    before = read_counter("shed")
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Wire(api.base)) for _ in range(10)]
        for wire in wires:
            await wire.send(create(api))
        excess = len(wires) - _SLOTS - _QUEUE_LENGTH
        responses = [asyncio.create_task(wire.answer()) for wire in wires]
        while sum(item.done() for item in responses) < excess:
            await asyncio.wait(responses, return_when=asyncio.FIRST_COMPLETED, timeout=0.1)
        await wait_for_blocked_statements(payment_lock, _SLOTS)
        shed = [item.result() for item in responses if item.done()]
        assert len(shed) == excess
        for answer in shed:
            assert answer is not None
            assert (answer.status, answer.json["code"]) == (503, "SERVICE_UNAVAILABLE")
            assert 1 <= int(answer.headers["retry-after"]) <= 5
            assert answer.headers["x-request-id"]
        assert await wait_until_read(api)  # the health check still works
        await payment_lock.execute("ROLLBACK")
        statuses = [item and item.status for item in await asyncio.gather(*responses)]
    assert sorted(map(int, filter(None, statuses))) == [201] * 5 + [503] * excess
    assert await count(api) == _SLOTS + _QUEUE_LENGTH
    assert read_counter("shed") - before == excess


async def test_merchant_load_does_not_use_the_slots_of_buyers(
    api: Api, payment_lock: asyncpg.Connection
) -> None:
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Wire(api.base)) for _ in range(_SLOTS)]
        for wire in wires:
            await wire.send(create(api))
        await wait_for_blocked_statements(payment_lock, _SLOTS)
        answer = await api.send("GET", "/c/cs_0000000000000000")
        assert answer.status == 404  # buyers have a separate lane


@pytest.mark.parametrize("path", ["/c/cs_0000000000000000", "/merchant", "/merchant/payments"])
async def test_a_shed_page_request_gets_an_html_page(path: str) -> None:
    messages: list[Message] = []

    async def send(message: Message) -> None:
        messages.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    scope = {"type": "http", "method": "GET", "path": path, "headers": []}
    await busy_application(scope, receive, send)
    headers = dict(messages[0]["headers"])
    assert messages[0]["status"] == 503
    assert headers[b"content-type"].startswith(b"text/html")
    assert headers[b"cache-control"] == b"no-store"
    assert 1 <= int(headers[b"retry-after"]) <= 5


async def shed_request(path: str) -> int:
    """Shed a request; return the retry delay in seconds."""
    messages: list[Message] = []

    async def send(message: Message) -> None:
        messages.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    await busy_application(
        {"type": "http", "method": "GET", "path": path, "headers": []}, receive, send
    )
    return int(dict(messages[0]["headers"])[b"retry-after"])


@pytest.mark.parametrize("path", ["/v1/payments", "/c/cs_0000000000000000"])
async def test_clients_that_are_shed_together_get_different_retry_delays(path: str) -> None:
    """The probability that one of the five delays is missing from 200 responses is 10^-18."""
    assert {await shed_request(path) for _ in range(200)} == {1, 2, 3, 4, 5}


async def test_a_queued_request_is_not_started_if_its_client_disconnects(
    api: Api, payment_lock: asyncpg.Connection
) -> None:
    before = read_counter("abandoned")
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Wire(api.base)) for _ in range(_SLOTS)]
        for wire in wires:
            await wire.send(create(api))
        await wait_for_blocked_statements(payment_lock, _SLOTS)
        for _ in range(_QUEUE_LENGTH):
            async with Wire(api.base) as leaving:
                await leaving.send(create(api))
                assert await wait_until_read(api)
        assert await wait_until_read(api)
        await payment_lock.execute("ROLLBACK")
        answers = [await wire.answer() for wire in wires]
    assert [answer and answer.status for answer in answers] == [201] * _SLOTS
    assert (await api.create()).status == 201  # the queue has been processed
    assert await count(api) == _SLOTS + 1
    assert read_counter("abandoned") - before == _QUEUE_LENGTH


@pytest.mark.parametrize("wait_s", [0.2])
async def test_a_request_that_waits_too_long_for_a_slot_is_shed(
    api: Api, payment_lock: asyncpg.Connection
) -> None:
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Wire(api.base)) for _ in range(_SLOTS + 1)]
        for wire in wires[:_SLOTS]:
            await wire.send(create(api))
        await wait_for_blocked_statements(payment_lock, _SLOTS)
        await wires[-1].send(create(api))
        late = await wires[-1].answer()
    assert late is not None
    assert late.status == 503


async def test_a_connection_beyond_the_limit_closes_the_longest_idle_connection(api: Api) -> None:
    async with AsyncExitStack() as stack:
        wires = []
        for _ in range(121):
            wire = await stack.enter_async_context(Wire(api.base))
            await wire.send(_HEALTH)
            answer = await wire.answer()
            assert answer is not None
            assert answer.status == 200
            wires.append(wire)
        assert await wires[0].answer() is None  # closed by the service
        await wires[1].send(_HEALTH)
        assert await wires[1].answer() is not None


# No body times out before the last connection is open.
@pytest.mark.parametrize("body_s", [2 * PATIENCE_S])
async def test_a_new_connection_is_rejected_if_no_connection_is_idle(api: Api) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(120):
            wire = await stack.enter_async_context(Wire(api.base))
            await wire.send(create(api, b"{", content_length=5_000))
        async with asyncio.timeout(PATIENCE_S):
            while True:
                async with Wire(api.base) as wire:
                    await wire.send(_HEALTH)
                    answer = await wire.answer()
                if answer is None or answer.status == 503:
                    return


async def test_a_client_that_does_not_read_responses_is_disconnected(api: Api) -> None:
    async with Wire(api.base) as wire:
        wire.read_slowly()
        await wire.send(b"GET /openapi.yaml HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
        assert (await api.create()).status == 201
        async with asyncio.timeout(PATIENCE_S):
            while not wire.is_lost():
                await wire.send(b" ")
                await asyncio.sleep(0.05)


async def test_open_streams_do_not_use_the_slots_of_buyers(api: Api) -> None:
    checkouts = [(await api.create()).json["checkout_id"] for _ in range(_SLOTS)]
    async with AsyncExitStack() as stack:
        for end in ("", "%0A"):
            for checkout_id in checkouts:
                wire = await stack.enter_async_context(Wire(api.base))
                path = f"/v1/checkout/{checkout_id}/events{end}"
                await wire.send(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode())
                await wire.head()
        answer = await api.send("GET", f"/v1/checkout/{checkouts[0]}")
    assert answer.status == 200


def lane_of(settings: Settings, path: str) -> LaneName | None:
    lane = Admission(settings).find_lane(path)
    return lane and lane.name


def test_the_merchant_lane_contains_exactly_the_routes_that_need_a_key(settings: Settings) -> None:
    """Their handlers are methods wrapped by `MerchantApi.route`."""
    routes = [item for item in (*ROUTES, *OPERATOR_ROUTES) if isinstance(item, Route)]
    needs_key = {
        route.path
        for route in routes
        if route.path.startswith("/v1/")
        and inspect.ismethod(getattr(route.endpoint, "__wrapped__", None))
    }
    assert {"/v1/payments", "/v1/test/clock/advance"} <= needs_key
    of_merchants = {
        route.path
        for route in routes
        if lane_of(settings, re.sub(r"{[^}]+}", "x_1", route.path)) is LaneName.MERCHANTS
    }
    assert of_merchants == needs_key


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/chains/native", LaneName.BUYERS),
        ("/v1/countries", LaneName.BUYERS),
        ("/v1/onramp/orders", LaneName.BUYERS),
        ("/v1/checkout/cs_x", LaneName.BUYERS),
        ("/v1/checkout/cs_x/events", None),
        ("/v1/countries/events", LaneName.BUYERS),
        ("/c/x", LaneName.BUYERS),
        ("/sdk/payintent.js", LaneName.BUYERS),
        ("/v1/callbacks/stripe/1", LaneName.GATEWAYS),
        ("/merchant", LaneName.OTHERS),
        ("/merchant/payments", LaneName.OTHERS),
        ("/merchant/payments/export.csv", LaneName.EXPORTS),
        ("/merchant/statements/stmt_1/statement.pdf", LaneName.EXPORTS),
        ("/audit/export.jsonl", LaneName.EXPORTS),
        ("/v1/payments/export.csv", LaneName.MERCHANTS),
        ("/c/export.csv", LaneName.BUYERS),
        ("/docs", LaneName.OTHERS),
        ("/docs/integrate", LaneName.OTHERS),
        ("/openapi.yaml", LaneName.OTHERS),
        ("/sdk", LaneName.OTHERS),
        ("/", LaneName.OTHERS),
        ("/v1", LaneName.OTHERS),
        ("/v1/nowhere", LaneName.OTHERS),
        ("/v1/paymentsx", LaneName.OTHERS),
        ("/v1/payments/", LaneName.OTHERS),
        ("/v1/payments/pay_1/nowhere", LaneName.OTHERS),
        ("/v1/payments/pay_1\n", LaneName.MERCHANTS),
        ("//v1/payments", LaneName.OTHERS),
        ("/operator/payments/pay_1", LaneName.OTHERS),
        ("/healthz", None),
    ],
)
def test_each_path_belongs_to_the_lane_of_its_clients(
    settings: Settings, path: str, name: LaneName | None
) -> None:
    assert lane_of(settings, path) is name


@pytest.mark.parametrize("path", ["/merchant", "/docs", "/sdk", "/openapi.yaml", "/nowhere"])
async def test_merchant_load_does_not_block_other_routes(
    api: Api, payment_lock: asyncpg.Connection, path: str
) -> None:
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Wire(api.base)) for _ in range(_SLOTS)]
        for wire in wires:
            await wire.send(create(api))
        await wait_for_blocked_statements(payment_lock, _SLOTS)
        answer = await asyncio.wait_for(api.send("GET", path), PATIENCE_S)
        assert answer.status in {200, 303, 404}
