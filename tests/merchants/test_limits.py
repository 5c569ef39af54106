"""Merchants' rate limits follow a GCRA model, even if callers compete or the clock changes."""

import asyncio
import os
import signal
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import asyncpg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from payintent.core.access import RateLimit, RateLimitClass
from payintent.db import migrations_runner
from payintent.db.database import Database
from payintent.merchants import access_store
from payintent.runtime.settings import Settings
from payintent_sandbox.postgres import Postgres
from tests.support.clock import StoppedClock
from tests.support.world import World

pytestmark = pytest.mark.full

CREATE, READ = RateLimitClass.CREATE, RateLimitClass.READ
ROUNDING = Fraction(5, 10_000)  # of a request


@dataclass
class Model:
    """The generic cell rate algorithm with exact numbers, and times in seconds."""

    limit: RateLimit
    full_at: Fraction = Fraction(0)

    def grant(self, now: Fraction, requested: int) -> int:
        base = max(self.full_at, now)
        room = self.limit.burst - (base - now) * self.limit.per_s + ROUNDING
        granted = max(0, min(requested, room.numerator // room.denominator))
        self.full_at = base + Fraction(granted, self.limit.per_s)
        return granted


@pytest.fixture
async def clock(world: World) -> StoppedClock:
    return await StoppedClock(world).stop()


_LIMITS = st.builds(RateLimit, per_s=st.integers(1, 200), burst=st.integers(1, 50))
_STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 3, 10, 100, 999, 1000]) | st.integers(0, 3_000), st.integers(1, 60)
    ),
    min_size=1,
    max_size=20,
)


async def test_a_bucket_grants_as_many_requests_as_the_model(
    world: World, clock: StoppedClock
) -> None:
    loop, database, merchants = asyncio.get_running_loop(), world.database, iter(range(999))

    async def assert_agrees(limit: RateLimit, steps: list[tuple[int, int]]) -> None:
        merchant_id, model = 1_000 + next(merchants), Model(limit)
        for ms, requested in steps:
            await clock.move(ms)
            now = Fraction(round(clock.monotonic() * 1000), 1000)
            grant = await access_store.take_tokens(database, merchant_id, CREATE, limit, requested)
            assert grant.token_count == model.grant(now, requested)
            assert grant.full_in_s == pytest.approx(float(model.full_at - now), abs=1e-5)

    @examples(
        max_examples=150,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(limit=_LIMITS, steps=_STEPS)
    def check_model(limit: RateLimit, steps: list[tuple[int, int]]) -> None:
        # Hypothesis runs in a thread, but the database connection belongs to this loop.
        asyncio.run_coroutine_threadsafe(assert_agrees(limit, steps), loop).result(60)

    await asyncio.to_thread(check_model)


async def test_a_burst_is_granted_immediately_and_refills_gradually(
    world: World, clock: StoppedClock
) -> None:
    database, limit = world.database, RateLimit(per_s=4, burst=10)
    assert (await access_store.take_tokens(database, 1, CREATE, limit, 7)).token_count == 7
    assert (await access_store.take_tokens(database, 1, CREATE, limit, 7)).token_count == 3
    empty = await access_store.take_tokens(database, 1, CREATE, limit, 7)
    assert (empty.token_count, empty.full_in_s) == (0, pytest.approx(2.5))
    await clock.move(249)
    assert (await access_store.take_tokens(database, 1, CREATE, limit, 7)).token_count == 0
    await clock.move(1)
    assert (await access_store.take_tokens(database, 1, CREATE, limit, 7)).token_count == 1
    await clock.move(60_000)
    assert (await access_store.take_tokens(database, 1, CREATE, limit, 99)).token_count == 10


async def test_each_merchant_and_limit_class_has_a_separate_bucket(
    world: World, clock: StoppedClock
) -> None:
    database, limit = world.database, RateLimit(per_s=1, burst=1)
    token_counts = [
        (await access_store.take_tokens(database, merchant_id, kind, limit, 1)).token_count
        for merchant_id, kind in ((1, CREATE), (1, READ), (2, CREATE), (2, READ), (1, CREATE))
    ]
    assert token_counts == [1, 1, 1, 1, 0]


async def test_concurrent_requests_cannot_exceed_the_bucket(
    world: World, clock: StoppedClock
) -> None:
    database, limit = world.database, RateLimit(per_s=100, burst=50)
    grants = await asyncio.gather(
        *(access_store.take_tokens(database, 1, CREATE, limit, 7) for _ in range(20))
    )
    assert sum(grant.token_count for grant in grants) == 50


async def test_setting_the_clock_back_blocks_requests_only_until_the_bucket_refills(
    world: World, clock: StoppedClock
) -> None:
    database, limit = world.database, RateLimit(per_s=10, burst=20)
    await clock.move(3_600_000)
    await access_store.take_tokens(database, 1, CREATE, limit, 20)
    await clock.move(-3_600_000)
    assert (await access_store.take_tokens(database, 1, CREATE, limit, 20)).token_count == 0
    await clock.move(2_000)
    assert (await access_store.take_tokens(database, 1, CREATE, limit, 20)).token_count == 20


async def test_usage_under_a_slow_limit_does_not_delay_a_faster_replacement(
    world: World, clock: StoppedClock
) -> None:
    database = world.database
    assert (
        await access_store.take_tokens(database, 1, CREATE, RateLimit(per_s=1, burst=600), 600)
    ).token_count == 600
    fast = RateLimit(per_s=100, burst=200)
    assert (await access_store.take_tokens(database, 1, CREATE, fast, 1)).token_count == 0
    await clock.move(2_000)
    assert (await access_store.take_tokens(database, 1, CREATE, fast, 200)).token_count == 200


async def test_a_limit_that_is_set_or_cleared_starts_with_a_full_bucket(
    world: World, clock: StoppedClock
) -> None:
    database, limit, merchant_id = world.database, RateLimit(per_s=1, burst=5), world.merchant_id
    for change in ("set", "clear"):
        await access_store.take_tokens(database, merchant_id, CREATE, limit, 5)
        assert (
            await access_store.take_tokens(database, merchant_id, CREATE, limit, 5)
        ).token_count == 0
        async with database.transaction() as tx:
            if change == "set":
                setting = access_store.RateLimitSetting(
                    merchant_id=merchant_id, kind=CREATE, per_s=1, burst=5
                )
                await access_store.set_limit(tx, setting)
            else:
                assert await access_store.clear_limit(tx, merchant_id, CREATE)
        assert (
            await access_store.take_tokens(database, merchant_id, CREATE, limit, 5)
        ).token_count == 5, change


async def test_every_bucket_is_full_after_a_database_crash(settings: Settings) -> None:
    with tempfile.TemporaryDirectory(prefix="payintent-crash-") as folder:
        Path(folder).chmod(0o711)  # so that the server's user can access its data
        postgres = Postgres(Path(folder) / "data", durable=False)
        try:
            url = postgres.start()
            await migrations_runner.migrate(url)
            assert await _take_all(settings, url) == [1_000, 0]
            await _checkpoint(
                url
            )  # so that the schema survives the crash, even if commits are not durable
            postmaster = int((Path(folder) / "data" / "postmaster.pid").read_text().split()[0])
            os.kill(postmaster, signal.SIGQUIT)  # the server exits without a checkpoint
            postgres.stop()
            assert await _take_all(settings, postgres.start()) == [1_000, 0]
        finally:
            postgres.stop()


async def _checkpoint(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("CHECKPOINT")
    await connection.close()


async def _take_all(settings: Settings, url: str) -> list[int]:
    database, limit = (
        Database(settings.model_copy(update={"database_url": url})),
        RateLimit(per_s=1, burst=1_000),
    )
    grants = [
        await access_store.take_tokens(database, 1, CREATE, limit, requested)
        for requested in (1_000, 1)
    ]
    await database.close()
    return [grant.token_count for grant in grants]
