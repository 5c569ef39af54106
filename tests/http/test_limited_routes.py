"""Rate limits for merchants: their routes, headers and keys."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY

from payintent.core.access import RateLimitClass
from payintent.fraud.model import FraudRuleKind, RiskLevel
from payintent.fraud.operations import AddFraudRule
from payintent.merchants.access_operations import ClearRateLimit, IssueApiKey, SetRateLimit
from payintent.payments.lookup import PaymentLookup
from payintent.runtime.settings import Settings
from tests.http.fault_proxy import FaultProxy
from tests.support.arrange import count, document, post, refusal
from tests.support.clock import StoppedClock
from tests.support.running_service import serving_api
from tests.support.world import Answer, Api, World

CREATE, READ = RateLimitClass.CREATE, RateLimitClass.READ


@pytest.fixture
async def clock(world: World) -> StoppedClock:
    """Stop the clock, so that buckets do not refill or expire."""
    return await StoppedClock(world).stop()


@asynccontextmanager
async def serving(settings: Settings, world: World, clock: StoppedClock) -> AsyncIterator[Api]:
    """Serve the API with these settings, the world's service and this clock."""
    async with serving_api(settings, world) as client:
        client.route_context.merchant_api.limiter._monotonic = clock.monotonic
        yield client


@pytest.fixture
async def api(settings: Settings, world: World, clock: StoppedClock) -> AsyncIterator[Api]:
    async with serving(settings, world, clock) as api:
        yield api


async def set_limit(
    api: Api, kind: RateLimitClass, burst: int, merchant_id: int | None = None
) -> None:
    merchant_id = merchant_id or api.world.merchant_id
    change = SetRateLimit(merchant_id=merchant_id, kind=kind, per_s=1, burst=burst)
    await api.world.perform(change)


def read_rate_limit(answer: Answer) -> tuple[str, int]:
    """Return the kind and the remaining requests from the headers."""
    policy = re.fullmatch(r'"(create|read)";q=(\d+);w=1', answer.headers["RateLimit-Policy"])
    current = re.fullmatch(r'"(create|read)";r=(\d+);t=(\d+)', answer.headers["RateLimit"])
    assert policy
    assert current
    assert policy[1] == current[1]
    return current[1], int(current[2])


async def count_remaining(api: Api, kind: RateLimitClass) -> int:
    """Return the remaining requests of a bucket with a rate of 1/s and a burst of 10."""
    [row] = await api.world.rows(
        "SELECT 10 - (full_at - extract(epoch FROM clock())::float8) AS n FROM rate_state "
        "WHERE merchant_id = $1 AND class = $2",
        api.world.merchant_id,
        kind,
    ) or [{"n": 10}]
    return round(row["n"])


async def test_responses_in_the_sandbox_have_no_rate_limit_headers(api: Api) -> None:
    for answer in (await api.create(), await api.send("GET", "/v1/payments", headers=api.bearer())):
        assert answer.status in {200, 201}
        assert not [name for name in answer.headers if name.lower().startswith("ratelimit")]


async def test_every_merchant_request_counts_once_against_its_limit(api: Api) -> None:
    payment_id = (await api.create()).json["id"]
    await set_limit(api, CREATE, 10)
    await set_limit(api, READ, 10)
    assert read_rate_limit(await api.create()) == ("create", 9)
    requests = [
        ("GET", f"/v1/payments/{payment_id}"),
        ("GET", "/v1/payments"),
        ("GET", "/v1/catalog"),
        ("POST", f"/v1/payments/{payment_id}/cancel"),
    ]
    for number, (method, path) in enumerate(requests, start=1):
        answer = await api.send(method, path, headers=api.bearer())
        assert answer.status == 200, path
        assert read_rate_limit(answer) == ("read", 10 - number), path
    tag = (
        answer.headers.get("ETag")
        or (await api.send("GET", "/v1/catalog", headers=api.bearer())).headers["ETag"]
    )
    not_modified = await api.send(
        "GET", "/v1/catalog", headers=api.bearer() | {"If-None-Match": tag}
    )
    assert (not_modified.status, read_rate_limit(not_modified)) == (304, ("read", 4))
    assert await count_remaining(api, CREATE) == 9


async def test_refused_requests_count_against_the_limit(api: Api) -> None:
    await set_limit(api, CREATE, 10)
    await set_limit(api, READ, 10)
    for body in (b"{", document(amount='"0"'), document(country='"KR"'), document(currency='"X"')):
        assert (await post(api, body)).status in {400, 422}
    assert (await post(api, document(), Idempotency_Key="no key")).status == 400
    assert await count_remaining(api, CREATE) == 5
    assert (await api.get("pay_nobody")).status == 404
    assert (await count_remaining(api, READ), await count_remaining(api, CREATE)) == (9, 5)


async def test_unauthenticated_requests_do_not_count_against_a_limit(api: Api) -> None:
    await set_limit(api, CREATE, 10)
    await set_limit(api, READ, 10)
    wrong_key = api.world.api_key[:-1] + ("y" if api.world.api_key.endswith("x") else "x")
    for key in ("", "sk_live_nonsense", wrong_key):
        answer = await post(api, document(), Authorization=f"Bearer {key}")
        assert answer.status == 401
        assert not [name for name in answer.headers if name.lower().startswith("ratelimit")]
    assert (await count_remaining(api, READ), await count_remaining(api, CREATE)) == (10, 10)


@pytest.mark.parametrize("kind", [CREATE, READ])
async def test_an_empty_bucket_returns_429_with_a_retry_delay(
    api: Api, kind: RateLimitClass
) -> None:
    await set_limit(api, kind, 2)

    async def request() -> Answer:
        if kind is CREATE:
            return await api.create()
        return await api.send("GET", "/v1/payments", headers=api.bearer())

    assert [(await request()).status < 300 for _ in range(2)] == [True, True]
    rejection = await request()
    assert refusal(rejection) == (429, "RATE_LIMITED")
    assert rejection.headers["Retry-After"] == "1"
    assert rejection.headers["RateLimit-Policy"] == f'"{kind}";q=1;w=1'
    assert rejection.headers["RateLimit"] == f'"{kind}";r=0;t=1'
    assert await count(api) == (2 if kind is CREATE else 0)


async def test_a_replay_counts_against_the_read_limit_only(api: Api) -> None:
    await set_limit(api, CREATE, 10)
    await set_limit(api, READ, 10)
    key = str(uuid4())
    assert read_rate_limit(await api.create(key)) == ("create", 9)
    replays = [await api.create(key) for _ in range(3)]
    assert {item.status for item in replays} == {201}
    assert [read_rate_limit(item) for item in replays] == [("read", 9), ("read", 8), ("read", 7)]
    assert read_rate_limit(await api.create()) == ("create", 8)


async def test_a_completed_key_is_replayed_even_if_the_create_limit_is_exhausted(api: Api) -> None:
    await set_limit(api, CREATE, 1)
    await set_limit(api, READ, 10)
    key = str(uuid4())
    first = await api.create(key)
    assert refusal(await api.create()) == (429, "RATE_LIMITED")
    replay = await api.create(key)
    assert (replay.status, replay.body, read_rate_limit(replay)) == (201, first.body, ("create", 0))
    assert replay.headers["Idempotency-Replayed"] == "true"
    assert refusal(await api.create(key, amount="1.00")) == (409, "IDEMPOTENCY_CONFLICT")
    assert refusal(await post(api, b"{")) == (400, "BAD_REQUEST")


async def test_refused_creates_do_not_use_the_read_limit(api: Api) -> None:
    await set_limit(api, CREATE, 1)
    await set_limit(api, READ, 10)
    key = str(uuid4())
    await api.create(key)
    rejections = [await api.create() for _ in range(30)]
    assert {refusal(item) for item in rejections} == {(429, "RATE_LIMITED")}
    assert {read_rate_limit(item) for item in rejections} == {("create", 0)}
    assert await count_remaining(api, READ) == 10


async def test_key_lookups_are_limited_if_the_create_limit_is_exhausted(api: Api) -> None:
    await set_limit(api, CREATE, 1)
    key = str(uuid4())
    await api.create(key)
    answers = [await post(api, b"{") for _ in range(10)] + [await api.create(key)]
    assert [answer.status for answer in answers] == [400] * 10 + [429]
    assert refusal(answers[10]) == (429, "RATE_LIMITED")
    assert {read_rate_limit(answer) for answer in answers} == {("create", 0)}


async def test_error_responses_have_rate_limit_headers(api: Api) -> None:
    rule = AddFraudRule(
        kind=FraudRuleKind.PAYER,
        value="blocked",
        code="PAYER_BLOCKED",
        level=RiskLevel.HIGH,
        score=90,
    )
    await api.world.perform(rule)
    payment_id = (await api.create()).json["id"]
    second_merchant = await api.world.add_merchant()
    await set_limit(api, CREATE, 20)
    await set_limit(api, READ, 20)
    await set_limit(api, READ, 20, second_merchant.merchant.id)
    path = f"/v1/payments/{payment_id}"
    no_json = {"Content_Type": "text/plain"}
    key = {"Idempotency-Key": str(uuid4())}
    creates = [
        await post(api, b"{"),
        await post(api, document(amount='"0"')),
        await post(api, document(), **no_json),
        await api.create(payer_uid="blocked"),
    ]
    reads = [
        await api.get("pay_nobody"),
        await api.send("GET", path, headers=api.bearer(second_merchant.api_key)),
        await api.send("POST", f"{path}/refunds", headers=api.bearer() | key),
        await api.send("POST", f"{path}/refunds", headers=api.bearer()),
        await api.send("POST", f"{path}/cancel", headers=api.bearer() | {"Idempotency-Key": "x"}),
        await api.send("GET", "/v1/payments?limit=0", headers=api.bearer()),
    ]
    assert [create.status for create in creates] == [400, 422, 415, 200]
    assert [read.status for read in reads] == [404, 403, 409, 400, 400, 400]
    assert [read_rate_limit(create) for create in creates] == [("create", 19 - n) for n in range(4)]
    assert [read_rate_limit(read) for read in reads if read.status != 403] == [
        ("read", 19 - n) for n in range(5)
    ]
    assert read_rate_limit(reads[1]) == ("read", 19)


async def test_a_body_that_is_too_large_is_refused_without_using_the_limit(api: Api) -> None:
    await set_limit(api, CREATE, 10)
    answer = await post(api, b" " * (64 * 1024 + 1))
    assert refusal(answer) == (413, "BAD_REQUEST")
    assert not [name for name in answer.headers if name.lower().startswith("ratelimit")]
    assert await count_remaining(api, CREATE) == 10


async def test_an_internal_error_has_rate_limit_headers_and_is_counted(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await set_limit(api, READ, 10)
    monkeypatch.setattr(PaymentLookup, "get_merchant_payment", None)
    before = REGISTRY.get_sample_value("payintent_bugs_total") or 0
    answer = await api.get("pay_nobody")
    assert (refusal(answer), read_rate_limit(answer)) == ((500, "INTERNAL_ERROR"), ("read", 9))
    assert REGISTRY.get_sample_value("payintent_bugs_total") == before + 1


async def test_a_replayed_denial_counts_against_the_read_limit(api: Api) -> None:
    rule = AddFraudRule(
        kind=FraudRuleKind.PAYER,
        value="blocked",
        code="PAYER_BLOCKED",
        level=RiskLevel.HIGH,
        score=90,
    )
    await api.world.perform(rule)
    await set_limit(api, CREATE, 10)
    await set_limit(api, READ, 10)
    key = str(uuid4())
    answers = [await api.create(key, payer_uid="blocked") for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert await count_remaining(api, READ) == 8
    assert read_rate_limit(await api.create()) == ("create", 8)


async def test_setting_or_clearing_a_limit_takes_effect_immediately(api: Api) -> None:
    await set_limit(api, READ, 1)
    responses = [await api.send("GET", "/v1/payments", headers=api.bearer()) for _ in range(2)]
    assert [answer.status for answer in responses] == [200, 429]
    await set_limit(api, READ, 5)
    responses = [await api.send("GET", "/v1/payments", headers=api.bearer()) for _ in range(6)]
    assert [answer.status for answer in responses] == [200] * 5 + [429]
    await api.world.perform(ClearRateLimit(merchant_id=api.world.merchant_id, kind=READ))
    unlimited = await api.send("GET", "/v1/payments", headers=api.bearer())
    assert (unlimited.status, unlimited.headers.get("RateLimit")) == (200, None)


async def test_keys_of_a_merchant_share_a_limit_and_merchants_do_not(api: Api) -> None:
    second_merchant = await api.world.add_merchant()
    second_key = (
        await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, name="b"))
    ).api_key
    await set_limit(api, READ, 2)
    await set_limit(api, READ, 2, second_merchant.merchant.id)
    keys = [api.world.api_key, second_key, second_key]
    statuses = [
        (await api.send("GET", "/v1/payments", headers=api.bearer(key))).status
        for key in (
            *keys,
            second_merchant.api_key,
            second_merchant.api_key,
            second_merchant.api_key,
        )
    ]
    assert statuses == [200, 200, 429, 200, 200, 429]


async def test_the_default_limits_apply_outside_the_sandbox(
    settings: Settings, world: World, clock: StoppedClock
) -> None:
    async with serving(settings.model_copy(update={"sandbox": False}), world, clock) as api:
        created = await api.create()
        assert created.headers["RateLimit-Policy"] == '"create";q=500;w=1'
        assert read_rate_limit(created) == ("create", 999)
        read = await api.get(created.json["id"])
        assert read.headers["RateLimit-Policy"] == '"read";q=1000;w=1'
        assert read_rate_limit(read) == ("read", 1_999)


async def test_public_routes_have_no_rate_limit_headers(
    settings: Settings, world: World, clock: StoppedClock
) -> None:
    async with serving(settings.model_copy(update={"sandbox": False}), world, clock) as api:
        created = (await api.create()).json
        for path in (f"/v1/checkout/{created['checkout_id']}", "/v1/countries", "/healthz"):
            assert "RateLimit" not in (await api.send("GET", path)).headers


class TestWithoutTheDatabase:
    @pytest.fixture
    async def proxy(self, database_url: str) -> AsyncIterator[FaultProxy]:
        proxy = FaultProxy(database_url)
        await proxy.mend()
        yield proxy
        await proxy.cut()

    @pytest.fixture
    def settings(self, settings: Settings, proxy: FaultProxy) -> Settings:
        changes: dict[str, Any] = {"database_url": proxy.url, "api_key_cache_s": 600.0}
        return settings.model_copy(update=changes)

    async def test_requests_return_503_while_the_limit_cannot_be_read(
        self, api: Api, proxy: FaultProxy
    ) -> None:
        await set_limit(api, READ, 50)
        await set_limit(api, CREATE, 50)
        assert (await api.create()).status == 201  # the key is cached now
        await proxy.cut()
        requests = [api.send("GET", "/v1/payments", headers=api.bearer()) for _ in range(10)]
        for answer in (*await asyncio.gather(*requests), await api.create()):
            assert refusal(answer) == (503, "SERVICE_UNAVAILABLE")
            assert 1 <= int(answer.headers["Retry-After"]) <= 5
        await proxy.mend()
        assert (await api.send("GET", "/v1/payments", headers=api.bearer())).status == 200
