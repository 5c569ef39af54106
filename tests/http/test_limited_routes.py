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
from tests.support.serving import serving_api
from tests.support.world import Answer, Api, World

CREATE, READ = RateLimitClass.CREATE, RateLimitClass.READ


@pytest.fixture
async def clock(world: World) -> StoppedClock:
    """A rate limit without refill or expiry."""
    return await StoppedClock(world).stop()


@asynccontextmanager
async def serving(settings: Settings, world: World, clock: StoppedClock) -> AsyncIterator[Api]:
    """The API with other settings, with the world's service and this clock."""
    async with serving_api(settings, world) as client:
        client.route_context.merchant_api.limiter._monotonic = clock.monotonic
        yield client


@pytest.fixture
async def api(settings: Settings, world: World, clock: StoppedClock) -> AsyncIterator[Api]:
    async with serving(settings, world, clock) as api:
        yield api


async def limit(api: Api, kind: RateLimitClass, burst: int, merchant_id: int | None = None) -> None:
    merchant_id = merchant_id or api.world.merchant_id
    change = SetRateLimit(merchant_id=merchant_id, kind=kind, per_s=1, burst=burst)
    await api.world.perform(change)


def told(answer: Answer) -> tuple[str, int]:
    """Return the kind and the remaining requests in the headers."""
    policy = re.fullmatch(r'"(create|read)";q=(\d+);w=1', answer.headers["RateLimit-Policy"])
    found = re.fullmatch(r'"(create|read)";r=(\d+);t=(\d+)', answer.headers["RateLimit"])
    assert policy
    assert found
    assert policy[1] == found[1]
    return found[1], int(found[2])


async def left(api: Api, kind: RateLimitClass) -> int:
    """Return the remaining requests of a bucket with a rate of 1/s and a burst of 10."""
    [row] = await api.world.rows(
        "SELECT 10 - (full_at - extract(epoch FROM clock())::float8) AS n FROM rate_state "
        "WHERE merchant_id = $1 AND class = $2",
        api.world.merchant_id,
        kind,
    ) or [{"n": 10}]
    return round(row["n"])


async def test_in_the_sandbox_nobody_is_limited_or_told(api: Api) -> None:
    for answer in (await api.create(), await api.send("GET", "/v1/payments", headers=api.bearer())):
        assert answer.status in {200, 201}
        assert not [name for name in answer.headers if name.lower().startswith("ratelimit")]


async def test_every_route_of_a_merchant_spends_one_request(api: Api) -> None:
    payment_id = (await api.create()).json["id"]
    await limit(api, CREATE, 10)
    await limit(api, READ, 10)
    assert told(await api.create()) == ("create", 9)
    reading = [
        ("GET", f"/v1/payments/{payment_id}"),
        ("GET", "/v1/payments"),
        ("GET", "/v1/catalog"),
        ("POST", f"/v1/payments/{payment_id}/cancel"),
    ]
    for number, (method, path) in enumerate(reading, start=1):
        answer = await api.send(method, path, headers=api.bearer())
        assert answer.status == 200, path
        assert told(answer) == ("read", 10 - number), path
    tag = (
        answer.headers.get("ETag")
        or (await api.send("GET", "/v1/catalog", headers=api.bearer())).headers["ETag"]
    )
    fresh = await api.send("GET", "/v1/catalog", headers=api.bearer() | {"If-None-Match": tag})
    assert (fresh.status, told(fresh)) == (304, ("read", 4))
    assert await left(api, CREATE) == 9


async def test_what_is_refused_spends_as_well(api: Api) -> None:
    await limit(api, CREATE, 10)
    await limit(api, READ, 10)
    for body in (b"{", document(amount='"0"'), document(country='"KR"'), document(currency='"X"')):
        assert (await post(api, body)).status in {400, 422}
    assert (await post(api, document(), Idempotency_Key="no key")).status == 400
    assert await left(api, CREATE) == 5
    assert (await api.get("pay_nobody")).status == 404
    assert (await left(api, READ), await left(api, CREATE)) == (9, 5)


async def test_strangers_spend_nothing(api: Api) -> None:
    await limit(api, CREATE, 10)
    await limit(api, READ, 10)
    other = api.world.api_key[:-1] + ("y" if api.world.api_key.endswith("x") else "x")
    for key in ("", "sk_live_nonsense", other):
        answer = await post(api, document(), Authorization=f"Bearer {key}")
        assert answer.status == 401
        assert not [name for name in answer.headers if name.lower().startswith("ratelimit")]
    assert (await left(api, READ), await left(api, CREATE)) == (10, 10)


@pytest.mark.parametrize("kind", [CREATE, READ])
async def test_an_empty_bucket_is_429_with_the_time_to_come_back(
    api: Api, kind: RateLimitClass
) -> None:
    await limit(api, kind, 2)

    async def ask() -> Answer:
        if kind is CREATE:
            return await api.create()
        return await api.send("GET", "/v1/payments", headers=api.bearer())

    assert [(await ask()).status < 300 for _ in range(2)] == [True, True]
    refused = await ask()
    assert refusal(refused) == (429, "RATE_LIMITED")
    assert refused.headers["Retry-After"] == "1"
    assert refused.headers["RateLimit-Policy"] == f'"{kind}";q=1;w=1'
    assert refused.headers["RateLimit"] == f'"{kind}";r=0;t=1'
    assert await count(api) == (2 if kind is CREATE else 0)


async def test_a_replay_spends_the_read_limit_and_gives_the_create_back(api: Api) -> None:
    await limit(api, CREATE, 10)
    await limit(api, READ, 10)
    key = str(uuid4())
    assert told(await api.create(key)) == ("create", 9)
    replayed = [await api.create(key) for _ in range(3)]
    assert {item.status for item in replayed} == {201}
    assert [told(item) for item in replayed] == [("read", 9), ("read", 8), ("read", 7)]
    assert told(await api.create()) == ("create", 8)


async def test_a_finished_key_still_replays_when_nothing_may_be_created(api: Api) -> None:
    await limit(api, CREATE, 1)
    await limit(api, READ, 10)
    key = str(uuid4())
    first = await api.create(key)
    assert refusal(await api.create()) == (429, "RATE_LIMITED")
    again = await api.create(key)
    assert (again.status, again.body, told(again)) == (201, first.body, ("create", 0))
    assert again.headers["Idempotency-Replayed"] == "true"
    assert refusal(await api.create(key, amount="1.00")) == (409, "IDEMPOTENCY_CONFLICT")
    assert refusal(await post(api, b"{")) == (400, "BAD_REQUEST")


async def test_refused_creates_cannot_use_up_the_reads(api: Api) -> None:
    await limit(api, CREATE, 1)
    await limit(api, READ, 10)
    key = str(uuid4())
    await api.create(key)
    refused = [await api.create() for _ in range(30)]
    assert {refusal(item) for item in refused} == {(429, "RATE_LIMITED")}
    assert {told(item) for item in refused} == {("create", 0)}
    assert await left(api, READ) == 10


async def test_nobody_looks_keys_up_for_free_when_nothing_may_be_created(api: Api) -> None:
    await limit(api, CREATE, 1)
    key = str(uuid4())
    await api.create(key)
    answers = [await post(api, b"{") for _ in range(10)] + [await api.create(key)]
    assert [answer.status for answer in answers] == [400] * 10 + [429]
    assert refusal(answers[10]) == (429, "RATE_LIMITED")
    assert {told(answer) for answer in answers} == {("create", 0)}


async def test_refusals_say_where_the_merchant_stands_too(api: Api) -> None:
    rule = AddFraudRule(
        kind=FraudRuleKind.PAYER,
        value="blocked",
        code="PAYER_BLOCKED",
        level=RiskLevel.HIGH,
        score=90,
    )
    await api.world.perform(rule)
    payment_id = (await api.create()).json["id"]
    other = await api.world.add_merchant()
    await limit(api, CREATE, 20)
    await limit(api, READ, 20)
    await limit(api, READ, 20, other.merchant.id)
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
        await api.send("GET", path, headers=api.bearer(other.api_key)),
        await api.send("POST", f"{path}/refunds", headers=api.bearer() | key),
        await api.send("POST", f"{path}/refunds", headers=api.bearer()),
        await api.send("POST", f"{path}/cancel", headers=api.bearer() | {"Idempotency-Key": "x"}),
        await api.send("GET", "/v1/payments?limit=0", headers=api.bearer()),
    ]
    assert [create.status for create in creates] == [400, 422, 415, 200]
    assert [read.status for read in reads] == [404, 403, 409, 400, 400, 400]
    assert [told(create) for create in creates] == [("create", 19 - n) for n in range(4)]
    assert [told(read) for read in reads if read.status != 403] == [
        ("read", 19 - n) for n in range(5)
    ]
    assert told(reads[1]) == ("read", 19)


async def test_a_body_that_is_too_large_is_refused_unread_and_spends_nothing(api: Api) -> None:
    await limit(api, CREATE, 10)
    answer = await post(api, b" " * (64 * 1024 + 1))
    assert refusal(answer) == (413, "BAD_REQUEST")
    assert not [name for name in answer.headers if name.lower().startswith("ratelimit")]
    assert await left(api, CREATE) == 10


async def test_a_fault_of_the_service_says_where_the_merchant_stands_and_is_counted(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await limit(api, READ, 10)
    monkeypatch.setattr(PaymentLookup, "get_merchant_payment", None)
    before = REGISTRY.get_sample_value("payintent_bugs_total") or 0
    answer = await api.get("pay_nobody")
    assert (refusal(answer), told(answer)) == ((500, "INTERNAL_ERROR"), ("read", 9))
    assert REGISTRY.get_sample_value("payintent_bugs_total") == before + 1


async def test_a_replayed_denial_spends_the_read_limit(api: Api) -> None:
    rule = AddFraudRule(
        kind=FraudRuleKind.PAYER,
        value="blocked",
        code="PAYER_BLOCKED",
        level=RiskLevel.HIGH,
        score=90,
    )
    await api.world.perform(rule)
    await limit(api, CREATE, 10)
    await limit(api, READ, 10)
    key = str(uuid4())
    answers = [await api.create(key, payer_uid="blocked") for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert await left(api, READ) == 8
    assert told(await api.create()) == ("create", 8)


async def test_an_operators_limit_holds_at_once_and_so_does_its_end(api: Api) -> None:
    await limit(api, READ, 1)
    asked = [await api.send("GET", "/v1/payments", headers=api.bearer()) for _ in range(2)]
    assert [answer.status for answer in asked] == [200, 429]
    await limit(api, READ, 5)
    asked = [await api.send("GET", "/v1/payments", headers=api.bearer()) for _ in range(6)]
    assert [answer.status for answer in asked] == [200] * 5 + [429]
    await api.world.perform(ClearRateLimit(merchant_id=api.world.merchant_id, kind=READ))
    free = await api.send("GET", "/v1/payments", headers=api.bearer())
    assert (free.status, free.headers.get("RateLimit")) == (200, None)


async def test_a_merchants_keys_share_and_merchants_do_not(api: Api) -> None:
    other = await api.world.add_merchant()
    second = (
        await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, name="b"))
    ).api_key
    await limit(api, READ, 2)
    await limit(api, READ, 2, other.merchant.id)
    mine = [api.world.api_key, second, second]
    asked = [
        (await api.send("GET", "/v1/payments", headers=api.bearer(key))).status
        for key in (*mine, other.api_key, other.api_key, other.api_key)
    ]
    assert asked == [200, 200, 429, 200, 200, 429]


async def test_outside_the_sandbox_everybody_has_the_installations_limits(
    settings: Settings, world: World, clock: StoppedClock
) -> None:
    async with serving(settings.model_copy(update={"sandbox": False}), world, clock) as api:
        created = await api.create()
        assert created.headers["RateLimit-Policy"] == '"create";q=500;w=1'
        assert told(created) == ("create", 999)
        read = await api.get(created.json["id"])
        assert read.headers["RateLimit-Policy"] == '"read";q=1000;w=1'
        assert told(read) == ("read", 1_999)


async def test_the_answer_to_a_browser_or_a_gateway_carries_no_limit(
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
        kept: dict[str, Any] = {"database_url": proxy.url, "api_key_cache_s": 600.0}
        return settings.model_copy(update=kept)

    async def test_a_limit_that_cannot_be_read_is_503_until_it_can(
        self, api: Api, proxy: FaultProxy
    ) -> None:
        await limit(api, READ, 50)
        await limit(api, CREATE, 50)
        assert (await api.create()).status == 201  # the key is known by now
        await proxy.cut()
        asked = [api.send("GET", "/v1/payments", headers=api.bearer()) for _ in range(10)]
        for answer in (*await asyncio.gather(*asked), await api.create()):
            assert refusal(answer) == (503, "SERVICE_UNAVAILABLE")
            assert 1 <= int(answer.headers["Retry-After"]) <= 5
        await proxy.mend()
        assert (await api.send("GET", "/v1/payments", headers=api.bearer())).status == 200
