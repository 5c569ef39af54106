"""The database or its response is lost: nothing is guessed, and nothing is done twice."""

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
from tests.support.patience import wait_until
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full

_AWAY = (503, "SERVICE_UNAVAILABLE")


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[FaultProxy]:
    proxy = FaultProxy(database_url)
    await proxy.mend()
    yield proxy
    await proxy.cut()


@pytest.fixture
def settings(settings: Settings, proxy: FaultProxy) -> Settings:
    return settings.model_copy(update={"database_url": proxy.url, "database_lock_timeout_ms": 300})


def _comes_back(answer: Answer) -> tuple[int, str]:
    assert int(answer.headers["Retry-After"]) >= 1
    return refusal(answer)


async def test_the_process_lives_and_is_ready_with_its_database(api: Api) -> None:
    alive = await api.send("GET", "/healthz")
    versions = {"version": VERSION, "api_version": API_VERSION, "commit": read_commit()}
    assert (alive.status, alive.json) == (200, {"status": "ok", **versions})
    assert (await api.send("GET", "/readyz")).status == 200


async def test_without_the_database_everything_is_503_until_it_is_back(
    api: Api, proxy: FaultProxy
) -> None:
    created, key = await api.create(), str(uuid4())
    await proxy.cut()
    creating = asyncio.create_task(post(api, document(), Idempotency_Key=key))
    assert (await api.send("GET", "/healthz")).status == 200
    ready = await api.send("GET", "/readyz")
    assert (ready.status, ready.json["code"]) == _AWAY
    checkout = f"/v1/checkout/{created.json['checkout_id']}"
    for answer in (
        await api.get(created.json["id"]),
        await cancel(api, created),
        await quotes(api, created),
        await api.send("POST", f"{checkout}/quotes", json={"payment_method_id": 1}),
        await creating,
    ):
        assert _comes_back(answer) == _AWAY
    page = await api.send("GET", f"/c/{created.json['checkout_id']}")
    assert page.status == 503
    assert 1 <= int(page.headers["Retry-After"]) <= 5
    assert page.headers["Content-Type"].startswith("text/html")
    await proxy.mend()
    assert (await api.send("GET", "/readyz")).status == 200
    assert (await post(api, document(), Idempotency_Key=key)).status == 201
    assert (await api.get(created.json["id"])).json["status"] == "PENDING"
    assert await count(api) == 2


async def test_a_hundred_refusals_are_a_line_a_second_and_a_hundred_counts(
    api: Api, proxy: FaultProxy
) -> None:
    created = await api.create()
    await proxy.cut()
    before, begun = _refused(), time.monotonic()
    with capture_logs() as lines:
        answers = [await api.get(created.json["id"]) for _ in range(100)]
    assert {refusal(answer) for answer in answers} == {_AWAY}
    assert _refused() - before == 100
    assert len({answer.headers["Retry-After"] for answer in answers}) > 1
    down = [line for line in lines if line["event"] == "storage_down"]
    reasons = {line["why"] for line in down}
    assert reasons
    assert len(down) <= len(reasons) * (2 + time.monotonic() - begun)


def _refused() -> float:
    name, labels = "payintent_database_refusals_total", {"code": "SERVICE_UNAVAILABLE"}
    return REGISTRY.get_sample_value(name, labels) or 0


async def test_what_was_refused_within_a_second_is_one_count_by_code_and_reason() -> None:
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


async def test_refusals_of_a_second_are_logged_though_no_more_follow() -> None:
    log = RefusalLog(0.001)
    request_id.set("of-the-first-request")
    with capture_logs(processors=[_add_ids]) as lines:
        for _ in range(5):
            log.record(ErrorCode.SERVICE_UNAVAILABLE, "away")
        await wait_until(lambda: len(lines) == 2, "the second line")
    assert [line["count"] for line in lines] == [1, 4]
    assert [line.get("request_id") for line in lines] == ["of-the-first-request", None]


async def test_a_schema_that_lacks_a_migration_is_not_ready(api: Api) -> None:
    await api.world.rows("DELETE FROM schema_migration")
    ready = await api.send("GET", "/readyz")
    assert (ready.status, ready.json["code"]) == _AWAY


async def test_a_create_whose_answer_was_lost_is_found_and_answered(
    api: Api, proxy: FaultProxy
) -> None:
    warm = await api.create()  # so that the statement is prepared and its answer comes in one
    key = str(uuid4())
    proxy.lose_answer_to = UUID(key).bytes
    answer = await post(api, document(), Idempotency_Key=key)
    assert proxy.lose_answer_to is None
    assert answer.status == 201
    assert answer.json["id"] != warm.json["id"]
    again = await post(api, document(), Idempotency_Key=key)
    assert (again.status, again.body) == (201, answer.body)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert await count(api) == 2


async def test_a_batch_of_creates_whose_answer_was_lost_is_found_and_answered(
    api: Api, proxy: FaultProxy
) -> None:
    async def create_together(*keys: str) -> list[Answer]:
        return await asyncio.gather(*(post(api, document(), Idempotency_Key=key) for key in keys))

    await create_together(*(str(uuid4()) for _ in range(8)))  # so that all is prepared
    keys = [str(uuid4()) for _ in range(8)]
    proxy.lose_answer_to = UUID(keys[-1]).bytes
    answers = await create_together(*keys)
    assert proxy.lose_answer_to is None
    assert {answer.status for answer in answers} == {201}
    assert len({answer.json["id"] for answer in answers}) == len(keys)
    again = await create_together(*keys)
    assert [each.body for each in again] == [answer.body for answer in answers]
    assert await count(api) == 2 * len(keys)


async def test_a_create_whose_connection_dies_before_its_commit_did_nothing(api: Api) -> None:
    key = str(uuid4())
    await api.create()
    async with _holding(api, "LOCK TABLE checkout IN SHARE MODE") as holder:
        creating = asyncio.create_task(post(api, document(), Idempotency_Key=key))
        # Asked outside the holder's transaction, which would see its first answer again and again.
        waiting: list[Any] = []
        while not waiting and not creating.done():
            waiting = await api.world.rows(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
                "AND wait_event_type = 'Lock' AND query LIKE '%INSERT INTO payment%'"
            )
        assert await holder.fetchval("SELECT pg_terminate_backend($1)", waiting[0]["pid"])
        assert _comes_back(await creating) == _AWAY
    assert await count(api) == 1
    answer = await post(api, document(), Idempotency_Key=key)
    assert answer.status == 201
    assert "Idempotency-Replayed" not in answer.headers
    assert await count(api) == 2


async def test_a_create_that_waits_too_long_for_its_key_is_asked_to_come_back(api: Api) -> None:
    key = str(uuid4())
    take = (
        "INSERT INTO idempotency (merchant_id, operation, key, request_hash, payment_id, "
        f"created_at) VALUES ({api.world.merchant_id}, 'create', '{key}', '', '{uuid4()}', clock())"
    )
    async with _holding(api, take):
        answer = await post(api, document(), Idempotency_Key=key)
        assert _comes_back(answer) == (409, "CONFLICT")
    assert (await post(api, document(), Idempotency_Key=key)).status == 201


async def test_a_cancel_that_waits_too_long_for_its_payment_is_asked_to_come_back(
    api: Api,
) -> None:
    created = await api.create()
    async with _holding(api, "SELECT 1 FROM payment FOR UPDATE"):
        assert _comes_back(await cancel(api, created)) == (409, "CONFLICT")
    assert (await cancel(api, created)).status == 200


class _holding:  # noqa: N801 - reads as what it does
    """Hold a statement's locks in another connection's transaction, which is rolled back."""

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
