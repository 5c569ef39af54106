"""The rate limiter, with a clock that the test advances."""

import asyncio
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from payintent.core.access import RateLimit, RateLimitClass, RateLimitStatus
from payintent.core.errors import RefusedError, StorageUnavailableError
from payintent.db.database import Database, Row
from payintent.http import address_limits as authentication_failures
from payintent.merchants import limits as rate_limits
from payintent.merchants.access_store import AuthenticatedMerchant
from payintent.merchants.limits import (
    AddressRateLimiter,
    MerchantRateLimiter,
    RateLimitExceededError,
)
from payintent.merchants.model import ActivationStatus, Market, TaxManager
from payintent.runtime.settings import Settings
from tests.support.clock import StoppedClock
from tests.support.world import World

pytestmark = pytest.mark.full

CREATE, READ = RateLimitClass.CREATE, RateLimitClass.READ
ROUNDING = Fraction(5, 10_000)  # of a request


def make_merchant(
    merchant_id: int, limit: RateLimit | None, kind: RateLimitClass = CREATE
) -> AuthenticatedMerchant:
    return AuthenticatedMerchant(
        merchant_id=merchant_id,
        activation=ActivationStatus.ACTIVE,
        tax_manager=TaxManager.NONE,
        digest=b"",
        market=Market(),
        methods=(),
        limits={} if limit is None else {kind: limit},
    )


@pytest.fixture
async def clock(world: World) -> StoppedClock:
    return await StoppedClock(world).stop()


@pytest.fixture
def limiter(world: World, clock: StoppedClock) -> MerchantRateLimiter:
    return MerchantRateLimiter(world.database, world.service.settings, clock.monotonic)


async def is_allowed(
    limiter: MerchantRateLimiter, holder: AuthenticatedMerchant, kind: RateLimitClass = CREATE
) -> bool:
    try:
        await limiter.take_token(holder, kind)
    except RateLimitExceededError:
        return False
    return True


@dataclass
class Model:
    """GCRA with exact numbers, and the expected response headers."""

    limit: RateLimit
    full_at: Fraction = Fraction(0)

    def spend(self, now: Fraction) -> dict[str, str]:
        per_s, burst = self.limit.per_s, self.limit.burst
        base = max(self.full_at, now)
        room = burst - (base - now) * per_s
        if room + ROUNDING >= 1:
            self.full_at = base + Fraction(1, per_s)
            remaining = _floor(burst - (self.full_at - now) * per_s)
            return _headers(self.limit, remaining, self.full_at - now)
        wait = base - now - Fraction(burst - 1, per_s)
        return _headers(self.limit, 0, wait) | {"Retry-After": str(max(1, _ceil(wait)))}


def _floor(number: Fraction) -> int:
    return number.numerator // number.denominator


def _ceil(number: Fraction) -> int:
    return -_floor(-number)


def _headers(limit: RateLimit, remaining: int, seconds: Fraction) -> dict[str, str]:
    return {
        "RateLimit-Policy": f'"create";q={limit.per_s};w=1',
        "RateLimit": f'"create";r={remaining};t={_ceil(seconds)}',
    }


_SLOW = st.builds(RateLimit, per_s=st.integers(1, 99), burst=st.integers(1, 30))
_GAPS_MS = st.lists(
    st.sampled_from([0, 0, 0, 1, 7, 10, 100, 250, 999, 1000]) | st.integers(0, 3_000),
    min_size=1,
    max_size=40,
)


async def test_below_100_requests_per_second_responses_and_headers_match_the_model(
    limiter: MerchantRateLimiter, clock: StoppedClock
) -> None:
    loop, merchants = asyncio.get_running_loop(), iter(range(9_999))

    async def assert_agrees(limit: RateLimit, gaps_ms: list[int]) -> None:
        holder, model = make_merchant(1_000 + next(merchants), limit), Model(limit)
        for ms in gaps_ms:
            await clock.move(ms)
            expected = model.spend(Fraction(round(clock.monotonic() * 1000), 1000))
            try:
                actual: dict[str, str] = dict(await limiter.take_token(holder, CREATE))
            except RateLimitExceededError as exceeded:
                actual = exceeded.headers | {"Retry-After": str(exceeded.retry_after_s)}
            assert actual == expected

    @examples(
        max_examples=100,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(limit=_SLOW, gaps_ms=_GAPS_MS)
    def check_model(limit: RateLimit, gaps_ms: list[int]) -> None:
        # Hypothesis runs in a thread, but the database connection belongs to this loop.
        asyncio.run_coroutine_threadsafe(assert_agrees(limit, gaps_ms), loop).result(60)

    await asyncio.to_thread(check_model)


@pytest.mark.parametrize(
    ("per_s", "burst"),
    [(1, 1), (3, 2), (99, 1), (100, 1), (100, 200), (500, 1), (500, 5), (500, 1_000), (1_000, 3)],
)
async def test_a_merchant_that_sends_continuously_gets_its_full_limit(
    limiter: MerchantRateLimiter, clock: StoppedClock, per_s: int, burst: int
) -> None:
    limit = RateLimit(per_s, burst)
    holder, model = make_merchant(7, limit), Model(limit)
    step_ms = 100 if per_s < 10 else 2 if burst < 10 else 10
    allowed = expected = 0
    for at in range(0, 500 * step_ms, step_ms):
        for _ in range(max(1, per_s * step_ms // 500)):  # twice the limit
            allowed += await is_allowed(limiter, holder)
            expected += "Retry-After" not in model.spend(Fraction(at, 1_000))
        await clock.move(step_ms)
        assert allowed <= expected
    assert allowed >= expected * 0.9


@pytest.mark.parametrize("share_of_the_first", [0.5, 0.9])
async def test_two_processes_together_stay_within_ten_percent_of_the_limit(
    world: World, clock: StoppedClock, share_of_the_first: float
) -> None:
    limit, seconds, step_ms = RateLimit(per_s=500, burst=1_000), 10, 10
    processes = [
        MerchantRateLimiter(world.database, world.service.settings, clock.monotonic)
        for _ in range(2)
    ]
    holder, allowed = make_merchant(7, limit), 0
    offered = 10  # per step, which is twice the limit
    of_first = round(offered * share_of_the_first)
    for _ in range(seconds * 1_000 // step_ms):
        for number in range(offered):
            allowed += await is_allowed(processes[number >= of_first], holder)
        await clock.move(step_ms)
    expected = limit.burst + limit.per_s * seconds
    assert allowed == pytest.approx(expected, rel=0.1)


async def test_with_a_fast_limit_every_tenth_request_queries_the_database(
    world: World, clock: StoppedClock
) -> None:
    database = Counting(world.database)
    limiter = MerchantRateLimiter(database, world.service.settings, clock.monotonic)  # type: ignore[arg-type]
    holder = make_merchant(7, RateLimit(per_s=500, burst=1_000))
    remaining = [_parse_remaining(await limiter.take_token(holder, CREATE)) for _ in range(100)]
    assert remaining == list(range(999, 899, -1))
    assert database.query_count == 10


async def test_the_remaining_requests_are_counted_exactly(
    limiter: MerchantRateLimiter, clock: StoppedClock
) -> None:
    # With floating-point numbers, 29 / 7 * 7 is greater than 29.
    holder = make_merchant(7, RateLimit(per_s=7, burst=30))
    remaining = [_parse_remaining(await limiter.take_token(holder, CREATE)) for _ in range(30)]
    assert remaining == list(range(29, -1, -1))


@pytest.mark.parametrize(
    ("seconds", "whole"),
    [(-0.5, 0), (0.0, 0), (0.2, 1), (1.0, 1), (0.1 + 0.7 + 0.2, 1), (1.001, 2)],
)
def test_headers_round_up_to_whole_seconds_without_floating_point_errors(
    seconds: float, whole: int
) -> None:
    limit = RateLimit(per_s=3, burst=9)
    limit_headers = rate_limits.make_limit_headers(
        CREATE, limit, RateLimitStatus(4, seconds + 1e-9)
    )
    assert limit_headers["RateLimit"] == f'"create";r=4;t={whole}'
    assert RateLimitExceededError(CREATE, limit, seconds + 1e-9).retry_after_s == max(1, whole)


async def test_an_empty_bucket_is_read_again_only_after_it_has_refilled_by_several_tokens(
    world: World, clock: StoppedClock
) -> None:
    database = Counting(world.database)
    limiter = MerchantRateLimiter(database, world.service.settings, clock.monotonic)  # type: ignore[arg-type]
    holder = make_merchant(7, RateLimit(per_s=500, burst=20))
    assert [await is_allowed(limiter, holder) for _ in range(20)] == [True] * 20
    database.query_count = 0
    assert [await is_allowed(limiter, holder) for _ in range(50)] == [False] * 50
    assert database.query_count == 1
    await clock.move(19)
    assert not await is_allowed(limiter, holder)
    await clock.move(1)
    assert [await is_allowed(limiter, holder) for _ in range(11)] == [True] * 10 + [False]


async def test_unused_prefetched_tokens_expire(
    limiter: MerchantRateLimiter, clock: StoppedClock
) -> None:
    holder = make_merchant(7, RateLimit(per_s=500, burst=10))
    assert await is_allowed(limiter, holder)  # and prefetches four more tokens
    await clock.move(1_000)
    limiter.return_token(holder, CREATE)  # too late: it has expired as well
    assert [await is_allowed(limiter, holder) for _ in range(11)] == [True] * 10 + [False]


async def test_a_returned_token_can_be_used_again(
    limiter: MerchantRateLimiter, clock: StoppedClock
) -> None:
    holder = make_merchant(7, RateLimit(per_s=1, burst=1))
    assert await is_allowed(limiter, holder)
    limiter.return_token(holder, CREATE)
    assert [await is_allowed(limiter, holder) for _ in range(2)] == [True, False]


async def test_a_new_limit_applies_from_the_next_request(
    limiter: MerchantRateLimiter, clock: StoppedClock
) -> None:
    slow = make_merchant(7, RateLimit(per_s=1, burst=1))
    assert [await is_allowed(limiter, slow) for _ in range(2)] == [True, False]
    fast = replace(slow, limits={CREATE: RateLimit(per_s=100, burst=200)})
    await clock.move(10)  # the usage under the slow limit is reset when the limit is set, not here
    headers = await limiter.take_token(fast, CREATE)
    assert headers["RateLimit-Policy"] == '"create";q=100;w=1'


async def test_without_a_limit_no_tokens_are_used_and_no_headers_returned(
    limiter: MerchantRateLimiter, world: World, clock: StoppedClock
) -> None:
    assert await limiter.take_token(make_merchant(7, None), CREATE) == {}
    assert await world.rows("SELECT FROM rate_state") == []


async def test_outside_the_sandbox_the_limits_of_the_installation_apply(
    world: World, clock: StoppedClock
) -> None:
    settings = world.service.settings.model_copy(update={"sandbox": False})
    limiter = MerchantRateLimiter(world.database, settings, clock.monotonic)
    without_own_limit = make_merchant(7, None)
    assert limiter.get_limit(without_own_limit, CREATE) == RateLimit(per_s=500, burst=1_000)
    assert limiter.get_limit(without_own_limit, READ) == RateLimit(per_s=1_000, burst=2_000)
    with_own_limit = make_merchant(7, RateLimit(per_s=3, burst=4))
    assert limiter.get_limit(with_own_limit, CREATE) == RateLimit(per_s=3, burst=4)
    assert limiter.get_limit(with_own_limit, READ) == RateLimit(per_s=1_000, burst=2_000)


async def test_requests_waiting_for_an_unreadable_bucket_fail_with_the_first_request(
    world: World, clock: StoppedClock
) -> None:
    settings = world.service.settings.model_copy(update={"database_lock_timeout_ms": 300})
    database = Counting(Database(settings))
    limiter = MerchantRateLimiter(database, settings, clock.monotonic)  # type: ignore[arg-type]
    holder = make_merchant(7, RateLimit(per_s=1, burst=10))
    assert await is_allowed(limiter, holder)
    database.query_count = 0
    connection = await world.open_connection()
    async with connection.transaction():
        await connection.execute("SELECT FROM rate_state FOR UPDATE")
        requests = [limiter.take_token(holder, CREATE) for _ in range(20)]
        errors = await asyncio.gather(*requests, return_exceptions=True)
    await connection.close()
    assert {type(item) for item in errors} == {StorageUnavailableError}
    assert database.query_count == 1
    assert await is_allowed(limiter, holder)
    await database.database.close()


async def test_the_number_of_buckets_in_memory_is_limited(
    world: World, clock: StoppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "_BUCKETS_MAX", 3)
    limiter = MerchantRateLimiter(world.database, world.service.settings, clock.monotonic)
    for merchant_id in range(10):
        assert await is_allowed(limiter, make_merchant(merchant_id, RateLimit(per_s=1, burst=1)))
        assert not await is_allowed(
            limiter, make_merchant(merchant_id, RateLimit(per_s=1, burst=1))
        )
        assert len(limiter._buckets) <= 3


def addresses(settings: Settings, per_s: int, burst: int, now: list[float]) -> AddressRateLimiter:
    limit = {"checkout_per_address_per_s": per_s, "checkout_per_address_burst": burst}
    return AddressRateLimiter(settings.model_copy(update=limit), lambda: now[0])


def _is_allowed(limiter: AddressRateLimiter, address: str | None) -> bool:
    try:
        limiter.take_token(address)
    except RefusedError as refused:
        return not refused.retry_after_s
    return True


@pytest.mark.parametrize(("per_s", "burst"), [(20, 100), (3, 7), (1, 1), (7, 1_000)])
def test_an_address_gets_its_full_burst_and_then_its_rate(
    settings: Settings, per_s: int, burst: int
) -> None:
    now = [12_345.678]
    limiter = addresses(settings, per_s, burst, now)
    assert [_is_allowed(limiter, "192.0.2.1") for _ in range(burst + 1)] == [True] * burst + [False]
    assert _is_allowed(limiter, "192.0.2.2")
    now[0] += 1
    assert sum(_is_allowed(limiter, "192.0.2.1") for _ in range(per_s + burst)) == min(per_s, burst)


def test_payment_links_have_a_separate_smaller_bucket(settings: Settings) -> None:
    now = [0.0]
    limiter = addresses(settings, 20, 100, now)
    for tokens in (30, 1):
        for _ in range(tokens):
            limiter.take_link_token("192.0.2.1")
        with pytest.raises(RefusedError, match="too many requests"):
            limiter.take_link_token("192.0.2.1")
        now[0] += 1
    assert _is_allowed(limiter, "192.0.2.1")
    unlimited = addresses(settings, 0, 1, now)
    for _ in range(40):
        unlimited.take_link_token("192.0.2.1")


def test_requests_without_an_address_or_a_limit_are_never_refused(settings: Settings) -> None:
    now = [0.0]
    assert all(_is_allowed(addresses(settings, 1, 1, now), None) for _ in range(3))
    limiter = addresses(settings, 0, 1, now)
    assert all(_is_allowed(limiter, "192.0.2.1") for _ in range(3))


def test_the_number_of_addresses_in_memory_is_limited(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication_failures, "_ADDRESSES_MAX", 100)
    now = [0.0]
    limiter = addresses(settings, 1, 1, now)
    for number in range(1_000):
        assert _is_allowed(limiter, f"192.0.{number // 250}.{number % 250}")
        assert len(limiter._buckets._full_at) <= 100
    assert not _is_allowed(limiter, "192.0.3.249")


@dataclass
class Counting:
    """The database, with a counter of single-row queries."""

    database: Database
    query_count: int = field(default=0)

    async def row(self, query: Any, *args: object) -> Row | None:
        self.query_count += 1
        return await self.database.row(query, *args)


def _parse_remaining(headers: Any) -> int:
    return int(headers["RateLimit"].partition(";r=")[2].partition(";")[0])
