"""If the database or its response is lost, requests fail safely and are not processed twice."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from payintent.core.errors import ErrorCode
from payintent.http.errors import RefusalLog
from payintent.runtime.log import _add_ids, request_id
from payintent.runtime.settings import Settings
from payintent.runtime.version import API_VERSION, VERSION, read_commit
from tests.http.fault_proxy import FaultProxy
from tests.support.arrange import cancel, count, document, post, quotes, refusal
from tests.support.timeouts import wait_until
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full

_UNAVAILABLE = (503, "SERVICE_UNAVAILABLE")


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[FaultProxy]:
    proxy = FaultProxy(database_url)
    await proxy.mend()
    yield proxy
    await proxy.cut()


@pytest.fixture
def settings(settings: Settings, proxy: FaultProxy) -> Settings:
    return settings.model_copy(update={"database_url": proxy.url, "database_lock_timeout_ms": 300})


def _retryable_refusal(answer: Answer) -> tuple[int, str]:
    assert int(answer.headers["Retry-After"]) >= 1
    return refusal(answer)


async def test_the_process_is_healthy_and_ready_with_its_database(api: Api) -> None:
    health = await api.send("GET", "/healthz")
    versions = {"version": VERSION, "api_version": API_VERSION, "commit": read_commit()}
    assert (health.status, health.json) == (200, {"status": "ok", **versions})
    assert (await api.send("GET", "/readyz")).status == 200


async def test_requests_return_503_until_the_database_is_back(api: Api, proxy: FaultProxy) -> None:
    created, key = await api.create(), str(uuid4())
    await proxy.cut()
    creating = asyncio.create_task(post(api, document(), Idempotency_Key=key))
    assert (await api.send("GET", "/healthz")).status == 200
    ready = await api.send("GET", "/readyz")
    assert (ready.status, ready.json["code"]) == _UNAVAILABLE
    checkout = f"/v1/checkout/{created.json['checkout_id']}"
    for answer in (
        await api.get(created.json["id"]),
        await cancel(api, created),
        await quotes(api, created),
        await api.send("POST", f"{checkout}/quotes", json={"payment_method_id": 1}),
        await creating,
    ):
        assert _retryable_refusal(answer) == _UNAVAILABLE
    page = await api.send("GET", f"/c/{created.json['checkout_id']}")
    assert page.status == 503
    assert 1 <= int(page.headers["Retry-After"]) <= 5
    assert page.headers["Content-Type"].startswith("text/html")
    await proxy.mend()
    assert (await api.send("GET", "/readyz")).status == 200
    assert (await post(api, document(), Idempotency_Key=key)).status == 201
    assert (await api.get(created.json["id"])).json["status"] == "PENDING"
    assert await count(api) == 2


async def test_refusals_are_logged_about_once_a_second_and_counted_individually(
    api: Api, proxy: FaultProxy
) -> None:
    created = await api.create()
    await proxy.cut()
    before, started_at = _count_refusals(), time.monotonic()
    with capture_logs() as lines:
        answers = [await api.get(created.json["id"]) for _ in range(100)]
    assert {refusal(answer) for answer in answers} == {_UNAVAILABLE}
    assert _count_refusals() - before == 100
    assert len({answer.headers["Retry-After"] for answer in answers}) > 1
    events = [line for line in lines if line["event"] == "storage_down"]
    reasons = {line["why"] for line in events}
    assert reasons
    assert len(events) <= len(reasons) * (2 + time.monotonic() - started_at)


def _count_refusals() -> float:
    name, labels = "payintent_database_refusals_total", {"code": "SERVICE_UNAVAILABLE"}
    return REGISTRY.get_sample_value(name, labels) or 0


async def test_refusals_within_an_interval_are_aggregated_by_reason() -> None:
    log = RefusalLog(3600.0)
    with capture_logs() as lines:
        for number in range(10):
            log.record(ErrorCode.SERVICE_UNAVAILABLE, "away" if number else "broken")
        log.flush()
        log.flush()
    assert [(line["why"], line["count"]) for line in lines] == [
        ("broken", 1),
        ("away", 1),
        ("away", 8),
    ]


async def test_aggregated_refusals_are_logged_even_if_no_more_follow() -> None:
    log = RefusalLog(0.001)
    request_id.set("of-the-first-request")
    with capture_logs(processors=[_add_ids]) as lines:
        for _ in range(5):
            log.record(ErrorCode.SERVICE_UNAVAILABLE, "away")
        await wait_until(lambda: len(lines) == 2, "the second line")
    assert [line["count"] for line in lines] == [1, 4]
    assert [line.get("request_id") for line in lines] == ["of-the-first-request", None]


async def test_the_service_is_not_ready_if_a_migration_is_missing(api: Api) -> None:
    await api.world.rows("DELETE FROM schema_migration")
    ready = await api.send("GET", "/readyz")
    assert (ready.status, ready.json["code"]) == _UNAVAILABLE


async def test_a_create_is_found_and_returned_if_its_database_response_is_lost(
    api: Api, proxy: FaultProxy
) -> None:
    first = await api.create()  # prepares the statement, so that its response is a single message
    key = str(uuid4())
    proxy.lose_answer_to = UUID(key).bytes
    answer = await post(api, document(), Idempotency_Key=key)
    assert proxy.lose_answer_to is None
    assert answer.status == 201
    assert answer.json["id"] != first.json["id"]
    replay = await post(api, document(), Idempotency_Key=key)
    assert (replay.status, replay.body) == (201, answer.body)
    assert replay.headers["Idempotency-Replayed"] == "true"
    assert await count(api) == 2


async def test_a_batch_of_creates_is_found_and_returned_if_its_response_is_lost(
    api: Api, proxy: FaultProxy
) -> None:
    async def create_together(*keys: str) -> list[Answer]:
        return await asyncio.gather(*(post(api, document(), Idempotency_Key=key) for key in keys))

    await create_together(*(str(uuid4()) for _ in range(8)))  # prepares all statements
    keys = [str(uuid4()) for _ in range(8)]
    proxy.lose_answer_to = UUID(keys[-1]).bytes
    answers = await create_together(*keys)
    assert proxy.lose_answer_to is None
    assert {answer.status for answer in answers} == {201}
    assert len({answer.json["id"] for answer in answers}) == len(keys)
    replays = await create_together(*keys)
    assert [replay.body for replay in replays] == [answer.body for answer in answers]
    assert await count(api) == 2 * len(keys)


async def test_a_create_has_no_effect_if_its_connection_dies_before_the_commit(api: Api) -> None:
    key = str(uuid4())
    await api.create()
    async with _HeldLocks(api, "LOCK TABLE checkout IN SHARE MODE") as holder:
        creating = asyncio.create_task(post(api, document(), Idempotency_Key=key))
        # The holder's transaction would return its first snapshot again and again.
        backends: list[Any] = []
        while not backends and not creating.done():
            backends = await api.world.rows(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
                "AND wait_event_type = 'Lock' AND query LIKE '%INSERT INTO payment%'"
            )
        assert await holder.fetchval("SELECT pg_terminate_backend($1)", backends[0]["pid"])
        assert _retryable_refusal(await creating) == _UNAVAILABLE
    assert await count(api) == 1
    answer = await post(api, document(), Idempotency_Key=key)
    assert answer.status == 201
    assert "Idempotency-Replayed" not in answer.headers
    assert await count(api) == 2


async def test_a_create_that_waits_too_long_for_its_key_gets_a_retryable_conflict(api: Api) -> None:
    key = str(uuid4())
    claim = (
        "INSERT INTO idempotency (merchant_id, operation, key, request_hash, payment_id, "
        f"created_at) VALUES ({api.world.merchant_id}, 'create', '{key}', '', '{uuid4()}', clock())"
    )
    async with _HeldLocks(api, claim):
        answer = await post(api, document(), Idempotency_Key=key)
        assert _retryable_refusal(answer) == (409, "CONFLICT")
    assert (await post(api, document(), Idempotency_Key=key)).status == 201


async def test_a_cancel_that_waits_too_long_for_its_payment_gets_a_retryable_conflict(
    api: Api,
) -> None:
    created = await api.create()
    async with _HeldLocks(api, "SELECT 1 FROM payment FOR UPDATE"):
        assert _retryable_refusal(await cancel(api, created)) == (409, "CONFLICT")
    assert (await cancel(api, created)).status == 200


class _HeldLocks:
    """Hold a statement's locks in a transaction of a separate connection, then roll it back."""

    def __init__(self, api: Api, statement: str) -> None:
        self._api, self._statement = api, statement

    async def __aenter__(self):
        self._connection = await self._api.world.open_connection()
        self._transaction = self._connection.transaction()
        await self._transaction.start()
        await self._connection.execute(self._statement)
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        await self._transaction.rollback()
        await self._connection.close()
