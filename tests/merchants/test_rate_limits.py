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
HAIR = Fraction(5, 10_000)  # of a request


def holder_of(
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


async def passes(
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
        if room + HAIR >= 1:
            self.full_at = base + Fraction(1, per_s)
            left = _floor(burst - (self.full_at - now) * per_s)
            return _headers(self.limit, left, self.full_at - now)
        wait = base - now - Fraction(burst - 1, per_s)
        return _headers(self.limit, 0, wait) | {"Retry-After": str(max(1, _ceil(wait)))}


def _floor(number: Fraction) -> int:
    return number.numerator // number.denominator


def _ceil(number: Fraction) -> int:
    return -_floor(-number)


def _headers(limit: RateLimit, left: int, seconds: Fraction) -> dict[str, str]:
    return {
        "RateLimit-Policy": f'"create";q={limit.per_s};w=1',
        "RateLimit": f'"create";r={left};t={_ceil(seconds)}',
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

    async def agrees(limit: RateLimit, gaps_ms: list[int]) -> None:
        holder, model = holder_of(1_000 + next(merchants), limit), Model(limit)
        for ms in gaps_ms:
            await clock.move(ms)
            wanted = model.spend(Fraction(round(clock.monotonic() * 1000), 1000))
            try:
                found: dict[str, str] = dict(await limiter.take_token(holder, CREATE))
            except RateLimitExceededError as exceeded:
                found = exceeded.headers | {"Retry-After": str(exceeded.retry_after_s)}
            assert found == wanted

    @examples(
        max_examples=100,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(limit=_SLOW, gaps_ms=_GAPS_MS)
    def agreed(limit: RateLimit, gaps_ms: list[int]) -> None:
        # Hypothesis runs in a thread, and the database in this loop.
        asyncio.run_coroutine_threadsafe(agrees(limit, gaps_ms), loop).result(60)

    await asyncio.to_thread(agreed)


@pytest.mark.parametrize(
    ("per_s", "burst"),
    [(1, 1), (3, 2), (99, 1), (100, 1), (100, 200), (500, 1), (500, 5), (500, 1_000), (1_000, 3)],
)
async def test_a_merchant_that_sends_continuously_gets_its_full_limit(
    limiter: MerchantRateLimiter, clock: StoppedClock, per_s: int, burst: int
) -> None:
    limit = RateLimit(per_s, burst)
    holder, model = holder_of(7, limit), Model(limit)
    step_ms = 100 if per_s < 10 else 2 if burst < 10 else 10
    passed = wanted = 0
    for at in range(0, 500 * step_ms, step_ms):
        for _ in range(max(1, per_s * step_ms // 500)):  # twice what may pass
            passed += await passes(limiter, holder)
            wanted += "Retry-After" not in model.spend(Fraction(at, 1_000))
        await clock.move(step_ms)
        assert passed <= wanted
    assert passed >= wanted * 0.9


@pytest.mark.parametrize("share_of_the_first", [0.5, 0.9])
async def test_two_processes_together_stay_within_ten_percent_of_the_limit(
    world: World, clock: StoppedClock, share_of_the_first: float
) -> None:
    limit, seconds, step_ms = RateLimit(per_s=500, burst=1_000), 10, 10
    processes = [
        MerchantRateLimiter(world.database, world.service.settings, clock.monotonic)
        for _ in range(2)
    ]
    holder, passed = holder_of(7, limit), 0
    offered = 10  # each step, which is twice what may pass
    of_first = round(offered * share_of_the_first)
    for _ in range(seconds * 1_000 // step_ms):
        for number in range(offered):
            passed += await passes(processes[number >= of_first], holder)
        await clock.move(step_ms)
    wanted = limit.burst + limit.per_s * seconds
    assert passed == pytest.approx(wanted, rel=0.1)


async def test_a_fast_limit_queries_the_database_for_every_tenth_request(
    world: World, clock: StoppedClock
) -> None:
    database = Counting(world.database)
    limiter = MerchantRateLimiter(database, world.service.settings, clock.monotonic)  # type: ignore[arg-type]
    holder = holder_of(7, RateLimit(per_s=500, burst=1_000))
    told = [_left(await limiter.take_token(holder, CREATE)) for _ in range(100)]
    assert told == list(range(999, 899, -1))
    assert database.asked == 10


async def test_the_remaining_requests_are_counted_exactly(
    limiter: MerchantRateLimiter, clock: StoppedClock
) -> None:
    holder = holder_of(7, RateLimit(per_s=7, burst=30))  # 29 / 7 * 7 is more than 29 for a computer
    told = [_left(await limiter.take_token(holder, CREATE)) for _ in range(30)]
    assert told == list(range(29, -1, -1))


@pytest.mark.parametrize(
    ("seconds", "whole"),
    [(-0.5, 0), (0.0, 0), (0.2, 1), (1.0, 1), (0.1 + 0.7 + 0.2, 1), (1.001, 2)],
)
def test_headers_round_up_to_whole_seconds_without_floating_point_errors(
    seconds: float, whole: int
) -> None:
    limit = RateLimit(per_s=3, burst=9)
    told = rate_limits.make_limit_headers(CREATE, limit, RateLimitStatus(4, seconds + 1e-9))
    assert told["RateLimit"] == f'"create";r=4;t={whole}'
    assert RateLimitExceededError(CREATE, limit, seconds + 1e-9).retry_after_s == max(1, whole)


async def test_an_empty_bucket_queries_the_database_only_after_several_tokens_refill(
    world: World, clock: StoppedClock
) -> None:
    database = Counting(world.database)
    limiter = MerchantRateLimiter(database, world.service.settings, clock.monotonic)  # type: ignore[arg-type]
    holder = holder_of(7, RateLimit(per_s=500, burst=20))
    assert [await passes(limiter, holder) for _ in range(20)] == [True] * 20
    database.asked = 0
    assert [await passes(limiter, holder) for _ in range(50)] == [False] * 50
    assert database.asked == 1
    await clock.move(19)
    assert not await passes(limiter, holder)
    await clock.move(1)
    assert [await passes(limiter, holder) for _ in range(11)] == [True] * 10 + [False]


async def test_unused_prefetched_tokens_expire(
    limiter: MerchantRateLimiter, clock: StoppedClock
) -> None:
    holder = holder_of(7, RateLimit(per_s=500, burst=10))
    assert await passes(limiter, holder)  # and four more are taken
    await clock.move(1_000)
    limiter.return_token(holder, CREATE)  # too late: it has lapsed as well
    assert [await passes(limiter, holder) for _ in range(11)] == [True] * 10 + [False]


async def test_a_returned_token_can_be_used_again(
    limiter: MerchantRateLimiter, clock: StoppedClock
) -> None:
    holder = holder_of(7, RateLimit(per_s=1, burst=1))
    assert await passes(limiter, holder)
    limiter.return_token(holder, CREATE)
    assert [await passes(limiter, holder) for _ in range(2)] == [True, False]


async def test_a_new_limit_applies_from_the_next_request(
    limiter: MerchantRateLimiter, clock: StoppedClock
) -> None:
    slow = holder_of(7, RateLimit(per_s=1, burst=1))
    assert [await passes(limiter, slow) for _ in range(2)] == [True, False]
    fast = replace(slow, limits={CREATE: RateLimit(per_s=100, burst=200)})
    await clock.move(10)  # what the slow one spent is forgotten when the limit is set, not here
    told = await limiter.take_token(fast, CREATE)
    assert told["RateLimit-Policy"] == '"create";q=100;w=1'


async def test_without_a_limit_no_tokens_are_used_and_no_headers_returned(
    limiter: MerchantRateLimiter, world: World, clock: StoppedClock
) -> None:
    assert await limiter.take_token(holder_of(7, None), CREATE) == {}
    assert await world.rows("SELECT FROM rate_state") == []


async def test_outside_the_sandbox_the_limits_of_the_installation_apply(
    world: World, clock: StoppedClock
) -> None:
    settings = world.service.settings.model_copy(update={"sandbox": False})
    limiter = MerchantRateLimiter(world.database, settings, clock.monotonic)
    anybody = holder_of(7, None)
    assert limiter.get_limit(anybody, CREATE) == RateLimit(per_s=500, burst=1_000)
    assert limiter.get_limit(anybody, READ) == RateLimit(per_s=1_000, burst=2_000)
    own = holder_of(7, RateLimit(per_s=3, burst=4))
    assert limiter.get_limit(own, CREATE) == RateLimit(per_s=3, burst=4)
    assert limiter.get_limit(own, READ) == RateLimit(per_s=1_000, burst=2_000)


async def test_requests_waiting_for_an_unreadable_bucket_fail_with_the_first_request(
    world: World, clock: StoppedClock
) -> None:
    settings = world.service.settings.model_copy(update={"database_lock_timeout_ms": 300})
    database = Counting(Database(settings))
    limiter = MerchantRateLimiter(database, settings, clock.monotonic)  # type: ignore[arg-type]
    holder = holder_of(7, RateLimit(per_s=1, burst=10))
    assert await passes(limiter, holder)
    database.asked = 0
    other = await world.open_connection()
    async with other.transaction():
        await other.execute("SELECT FROM rate_state FOR UPDATE")
        waiting = [limiter.take_token(holder, CREATE) for _ in range(20)]
        failed = await asyncio.gather(*waiting, return_exceptions=True)
    await other.close()
    assert {type(item) for item in failed} == {StorageUnavailableError}
    assert database.asked == 1
    assert await passes(limiter, holder)
    await database.database.close()


async def test_the_number_of_buckets_in_memory_is_limited(
    world: World, clock: StoppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "_BUCKETS_MAX", 3)
    limiter = MerchantRateLimiter(world.database, world.service.settings, clock.monotonic)
    for merchant_id in range(10):
        assert await passes(limiter, holder_of(merchant_id, RateLimit(per_s=1, burst=1)))
        assert not await passes(limiter, holder_of(merchant_id, RateLimit(per_s=1, burst=1)))
        assert len(limiter._buckets) <= 3


def addresses(settings: Settings, per_s: int, burst: int, now: list[float]) -> AddressRateLimiter:
    limit = {"checkout_per_address_per_s": per_s, "checkout_per_address_burst": burst}
    return AddressRateLimiter(settings.model_copy(update=limit), lambda: now[0])


def _spends(limiter: AddressRateLimiter, address: str | None) -> bool:
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
    assert [_spends(limiter, "192.0.2.1") for _ in range(burst + 1)] == [True] * burst + [False]
    assert _spends(limiter, "192.0.2.2")
    now[0] += 1
    assert sum(_spends(limiter, "192.0.2.1") for _ in range(per_s + burst)) == min(per_s, burst)


def test_payment_links_have_a_separate_smaller_bucket(settings: Settings) -> None:
    now = [0.0]
    limiter = addresses(settings, 20, 100, now)
    for tokens in (30, 1):
        for _ in range(tokens):
            limiter.take_link_token("192.0.2.1")
        with pytest.raises(RefusedError, match="too many requests"):
            limiter.take_link_token("192.0.2.1")
        now[0] += 1
    assert _spends(limiter, "192.0.2.1")
    unlimited = addresses(settings, 0, 1, now)
    for _ in range(40):
        unlimited.take_link_token("192.0.2.1")


def test_requests_without_an_address_or_a_limit_are_never_refused(settings: Settings) -> None:
    now = [0.0]
    assert all(_spends(addresses(settings, 1, 1, now), None) for _ in range(3))
    limiter = addresses(settings, 0, 1, now)
    assert all(_spends(limiter, "192.0.2.1") for _ in range(3))


def test_the_number_of_addresses_in_memory_is_limited(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication_failures, "_ADDRESSES_MAX", 100)
    now = [0.0]
    limiter = addresses(settings, 1, 1, now)
    for number in range(1_000):
        assert _spends(limiter, f"192.0.{number // 250}.{number % 250}")
        assert len(limiter._buckets._full_at) <= 100
    assert not _spends(limiter, "192.0.3.249")


@dataclass
class Counting:
    """The database, with a count of the reads of a row."""

    database: Database
    asked: int = field(default=0)

    async def row(self, query: Any, *args: object) -> Row | None:
        self.asked += 1
        return await self.database.row(query, *args)


def _left(headers: Any) -> int:
    return int(headers["RateLimit"].partition(";r=")[2].partition(";")[0])
