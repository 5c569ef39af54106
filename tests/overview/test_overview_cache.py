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
ENDED = """
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
    asked_for: list[Any] = field(default_factory=list[Any])

    @property
    def payer_sealing(self) -> PayerSealing:
        return self.database.payer_sealing

    async def fetch(self, query: LiteralString, *args: object) -> list[Row]:
        self.statements += 1
        return await self.database.fetch(query, *args)

    async def row(self, query: LiteralString, *args: object) -> Row | None:
        self.statements += 1
        self.asked_for.append(args)
        return await self.database.row(query, *args)


@pytest.fixture
async def clock(world: World) -> StoppedClock:
    clock = await StoppedClock(world).stop()
    await world.rows("UPDATE figure_mark SET counted_until = clock(), closed_until = clock()")
    return clock


async def stored(world: World) -> dict[tuple[str, str], Amount]:
    sums: dict[tuple[str, str], Amount] = {}
    for row in await world.rows(ENDED):
        key = (row["kind"], row["currency"])
        sums[key] = sums.get(key, Amount()) + Amount(1, Decimal(row["amount"]))
    return sums


@pytest.mark.parametrize("seed", range(10, 13))
async def test_figures_in_memory_are_those_of_the_rows_over_random_histories(
    world: World, clock: StoppedClock, seed: int
) -> None:
    """Closed hours come from memory, and other hours from each read."""
    ours = Clock()
    cache = OverviewCache(world.database, ours)
    history = History(world, clock, random.Random(seed))
    for _ in range(40):
        await history.step()
        ours.now_s += 1.1
        await cache.get()
    await settle(world, clock)
    ours.now_s += 61
    figures = await cache.get()
    sums = figures.totals(Period.MONTH)
    money = {key: value for key, value in sums.items() if "DELIVERED" not in key[0]}
    expected = await stored(world)
    assert money == expected
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


async def test_a_period_holds_what_happened_in_it_and_no_more(
    world: World, clock: StoppedClock
) -> None:
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


async def test_twenty_who_look_at_the_same_time_cost_one_statement(world: World) -> None:
    ours, reads = Clock(), CountingReads(world.database)
    cache = OverviewCache(reads, ours)
    for second in range(1, 6):
        await asyncio.gather(*(cache.get() for _ in range(VIEWERS)))
        assert reads.statements == second
        ours.now_s += 0.9
        await asyncio.gather(*(cache.get() for _ in range(VIEWERS)))
        assert reads.statements == second
        ours.now_s += 0.1


async def test_the_conversion_is_added_up_once_a_minute(world: World) -> None:
    ours, reads = Clock(), CountingReads(world.database)
    cache = OverviewCache(reads, ours)
    for _ in range(121):
        await cache.get()
        ours.now_s += 1.0
    added_up = [number for number, args in enumerate(reads.asked_for) if args[1]]
    assert added_up == [0, 60, 120]
