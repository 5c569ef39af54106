"""The overview is correct for random histories, and needs one statement per second."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, LiteralString

import pytest

from payintent.db.database import Executor, Row
from payintent.db.sealing import PayerSealing
from payintent.overview.cache import Amount, OverviewCache, Period
from tests.evm.net import Clock
from tests.overview.test_hourly_figures import HOUR_MS, History, settle
from tests.support.clock import StoppedClock
from tests.support.world import World

pytestmark = pytest.mark.full

VIEWERS = 20
ENDS = ("PAID", "FAILED", "EXPIRED", "CANCELLED")
EVENTS = """
    SELECT e.kind, p.currency, p.amount, e.at
    FROM payment p
    CROSS JOIN LATERAL (VALUES (p.paid_at, 'PAID'), (p.failed_at, 'FAILED'),
        (p.expired_at, 'EXPIRED'), (p.cancelled_at, 'CANCELLED')) AS e (at, kind)
    WHERE e.at IS NOT NULL
    UNION ALL
    SELECT 'REFUNDED', currency, amount, updated_at
    FROM refund
    WHERE status = 'SUCCEEDED' AND case_id IS NULL
    UNION ALL
    SELECT 'DISPUTED', currency, amount_minor / 100, created_at
    FROM dispute
"""


@dataclass
class CountingReads(Executor):
    """The database, with a count of its statements."""

    database: Executor
    statements: int = 0
    arguments: list[Any] = field(default_factory=list[Any])

    @property
    def payer_sealing(self) -> PayerSealing:
        return self.database.payer_sealing

    async def fetch(self, query: LiteralString, *args: object) -> list[Row]:
        self.statements += 1
        return await self.database.fetch(query, *args)

    async def row(self, query: LiteralString, *args: object) -> Row | None:
        self.statements += 1
        self.arguments.append(args)
        return await self.database.row(query, *args)


@pytest.fixture
async def clock(world: World) -> StoppedClock:
    clock = await StoppedClock(world).stop()
    await world.rows("UPDATE figure_mark SET counted_until = clock(), closed_until = clock()")
    return clock


async def sum_stored(world: World) -> dict[tuple[str, str], Amount]:
    sums: dict[tuple[str, str], Amount] = {}
    for row in await world.rows(EVENTS):
        key = (row["kind"], row["currency"])
        sums[key] = sums.get(key, Amount()) + Amount(1, Decimal(row["amount"]))
    return sums


@pytest.mark.parametrize("seed", range(10, 13))
async def test_cached_figures_of_random_histories_match_the_stored_rows(
    world: World, clock: StoppedClock, seed: int
) -> None:
    """Closed hours come from memory, and other hours from each read."""
    clock_s = Clock()
    cache = OverviewCache(world.database, clock_s)
    history = History(world, clock, random.Random(seed))
    for _ in range(40):
        await history.step()
        clock_s.now_s += 1.1
        await cache.get()
    await settle(world, clock)
    clock_s.now_s += 61
    figures = await cache.get()
    sums = figures.totals(Period.MONTH)
    payment_sums = {key: value for key, value in sums.items() if "DELIVERED" not in key[0]}
    expected = await sum_stored(world)
    assert payment_sums == expected
    counts = Counter[str]()
    for (kind, _), amount in expected.items():
        counts[kind] += amount.count
    for subject in ("method", "country"):
        ends = Counter[str]()
        for figure in figures.conversion:
            if figure.subject == subject:
                ends[figure.kind] += figures.get_count(figure, Period.MONTH)
        assert ends == {kind: counts[kind] for kind in ENDS if counts[kind]}
    points = figures.data_points(Period.MONTH)
    assert len(points) == 30
    assert sum(kinds.get("PAID", 0) for _, kinds in points) == counts["PAID"]


async def test_a_period_includes_only_its_own_events(world: World, clock: StoppedClock) -> None:
    history = History(world, clock, random.Random(1))
    await history.pay()
    await clock.move(30 * HOUR_MS)
    await settle(world, clock)
    figures = await OverviewCache(world.database, Clock()).get()
    assert ("PAID", "THB") not in figures.totals(Period.DAY)
    assert figures.totals(Period.WEEK)["PAID", "THB"].count == 1
    assert [len(figures.data_points(period)) for period in Period] == [24, 28, 30]
    assert {figure.subject for figure in figures.conversion} == {"method", "country"}
    for figure in figures.conversion:
        assert figure.value != ""
        assert [figures.get_count(figure, period) for period in Period] == [0, 1, 1]


async def test_twenty_concurrent_viewers_cost_one_statement_per_second(world: World) -> None:
    clock_s, reads = Clock(), CountingReads(world.database)
    cache = OverviewCache(reads, clock_s)
    for second in range(1, 6):
        await asyncio.gather(*(cache.get() for _ in range(VIEWERS)))
        assert reads.statements == second
        clock_s.now_s += 0.9
        await asyncio.gather(*(cache.get() for _ in range(VIEWERS)))
        assert reads.statements == second
        clock_s.now_s += 0.1


async def test_conversion_figures_are_read_once_a_minute(world: World) -> None:
    clock_s, reads = Clock(), CountingReads(world.database)
    cache = OverviewCache(reads, clock_s)
    for _ in range(121):
        await cache.get()
        clock_s.now_s += 1.0
    conversion_reads = [number for number, args in enumerate(reads.arguments) if args[1]]
    assert conversion_reads == [0, 60, 120]
