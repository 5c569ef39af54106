"""The recent API calls for developers: recorded asynchronously, limited, and deleted."""

import asyncio
import time
from typing import Any

import pytest
from prometheus_client import REGISTRY

from payintent.app import build_app
from payintent.db.database import Database
from payintent.http.responses import MERCHANT_ID
from payintent.merchants import access_store, call_log
from payintent.merchants.call_log import _CALLS_MAX, CallLog, CallLogWriter
from payintent.runtime.settings import Settings
from payintent.service import Service
from payintent.worker import prune
from tests.portal.member_browser import member, words
from tests.support.ports import free_port
from tests.support.timeouts import PATIENCE_S
from tests.support.world import Api, World

pytestmark = pytest.mark.full

_DROPPED = "payintent_api_calls_dropped_total"
_DAY_S = 24 * 3600


async def wait_for_calls(world: World, count: int) -> list[Any]:
    """Wait until at least `count` calls are stored. Return them newest first."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        calls = await call_log.list_api_calls(world.database, world.merchant_id, 1_000)
        if len(calls) >= count:
            return calls
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_a_call_is_stored_with_its_route_error_code_and_request_id(api: Api) -> None:
    headers = api.bearer() | {"X-Request-Id": "mine-1"}
    await api.create()
    await api.send("GET", "/v1/payments/pay_0000000000000000000001", headers=headers)
    await api.send("GET", "/v1/payments?limit=x", headers=headers)
    calls = await wait_for_calls(api.world, 3)
    assert {(call.method, call.route, call.status, call.error_code) for call in calls} == {
        ("POST", "/v1/payments", 201, None),
        ("GET", "/v1/payments/{payment_id}", 404, "NOT_FOUND"),
        ("GET", "/v1/payments", 400, "BAD_REQUEST"),
    }
    assert [call.request_id for call in calls if call.status >= 400] == ["mine-1"] * 2
    assert all(0 < call.duration_us < PATIENCE_S * 1_000_000 for call in calls)


async def test_developers_can_list_all_calls_or_only_failed_calls(api: Api) -> None:
    developer = await member(api)
    await api.create()
    await api.send("GET", "/v1/payments?limit=x", headers=api.bearer())
    await wait_for_calls(api.world, 2)
    page = words(await developer.get("/merchant/calls"))
    assert "POST /v1/payments 201" in page
    assert "GET /v1/payments 400 BAD_REQUEST" in page
    failed = words(await developer.get("/merchant/calls?failed=1"))
    assert "400 BAD_REQUEST" in failed
    assert "POST /v1/payments" not in failed


async def test_bodies_queries_keys_and_ids_are_not_stored(api: Api) -> None:
    created = await api.create(payer_uid="buyer-secret")
    path = f"/v1/payments/{created.json['id']}?x=query-secret"
    await api.send("GET", path, headers=api.bearer())
    await wait_for_calls(api.world, 2)
    stored = str([list(row.values()) for row in await api.world.rows("SELECT * FROM api_call")])
    for secret in ("buyer-secret", "query-secret", api.world.api_key, created.json["id"]):
        assert secret not in stored


async def test_requests_without_a_valid_key_are_not_logged(api: Api) -> None:
    await api.send("GET", "/v1/payments", headers=api.bearer("sk_live_x"))
    await api.send("GET", "/v1/countries")
    created = await api.create()
    await api.send("GET", f"/v1/checkout/{created.json['checkout_id']}")
    [call] = await wait_for_calls(api.world, 1)
    assert call.route == "/v1/payments"


def _scope(merchant_id: int | None, method: str = "GET") -> dict[str, Any]:
    scope: dict[str, Any] = {"method": method}
    return scope | ({} if merchant_id is None else {MERCHANT_ID: merchant_id})


def test_the_call_log_is_bounded_and_counts_dropped_calls() -> None:
    before = REGISTRY.get_sample_value(_DROPPED) or 0
    log = CallLog(lambda: 7.0)
    for number in range(_CALLS_MAX + 5):
        log.record(_scope(1), 200, b"%d" % number, 6.0)
    for merchant_id in range(2, 1_000):
        log.record(_scope(merchant_id), 200, b"x", 6.0)
    log.record(_scope(None), 200, b"x", 6.0)
    calls = log.drain()
    assert [call.request_id for call in calls if call.merchant_id == 1] == [
        str(number) for number in range(5, _CALLS_MAX + 5)
    ]
    assert len({call.merchant_id for call in calls}) == 200
    assert REGISTRY.get_sample_value(_DROPPED) == before + 5 + 799
    assert log.drain() == []


async def test_calls_are_dropped_while_the_database_is_unreachable(any_settings: Settings) -> None:
    before = REGISTRY.get_sample_value(_DROPPED) or 0
    log = CallLog()
    log.record(_scope(1), 200, b"x", time.monotonic())
    update = {"database_url": f"postgresql://nobody@127.0.0.1:{free_port()}/nothing"}
    database = Database(any_settings.model_copy(update=update))
    await CallLogWriter(log, database).flush()
    await database.close()
    assert REGISTRY.get_sample_value(_DROPPED) == before + 1


async def test_calls_are_deleted_in_batches_after_seven_days(
    service: Service, world: World
) -> None:
    log = CallLog()
    for _ in range(5):
        log.record(_scope(world.merchant_id), 200, b"x", time.monotonic())
    await CallLogWriter(log, service.database).flush()
    await world.move_clock(7 * _DAY_S - 60)
    assert await access_store.delete_old_calls(service.database, 7, 100) == 0
    await world.move_clock(7 * _DAY_S + 60)
    assert await access_store.delete_old_calls(service.database, 7, 2) == 2
    await prune(service.database, service.settings)
    assert await world.rows("SELECT FROM api_call") == []


def test_the_call_log_can_be_disabled_by_its_setting(any_settings: Settings) -> None:
    app = build_app(any_settings.model_copy(update={"api_calls_days": 0}))
    assert app._record_call is None
    assert build_app(any_settings)._record_call is not None
