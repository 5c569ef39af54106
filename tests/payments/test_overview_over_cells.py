"""Today over two cells: figures are added up, and a cell that is away is named and left alone."""

from collections.abc import AsyncIterator
from decimal import Decimal

import pytest

from payintent.console.today import figures_html
from payintent.payments.count_outcomes import count_outcomes
from payintent.payments.overview_cache import Amount, Period
from payintent.payments.overview_over_cells import OverviewOverCells
from tests.evm.net import Clock
from tests.support.cell_schema import OF_CELLS
from tests.support.databases import Databases
from tests.support.fakes import captured
from tests.support.two_cells import TwoCells, two_cells
from tests.support.world import World

pytestmark = OF_CELLS
_PRICE = Decimal("1590.00")


@pytest.fixture
async def two(world: World, databases: Databases) -> AsyncIterator[TwoCells]:
    async with two_cells(world, databases) as made:
        other = (await made.world.other_merchant()).merchant.id
        for merchant_id in (other, made.world.merchant_id, made.world.merchant_id):
            await made.pay(merchant_id)
        await made.world.move_clock(60)
        for database in made.world.service.cells:
            while await count_outcomes(database):
                pass
        yield made


async def test_figures_are_added_up_and_a_cell_that_is_away_is_named(two: TwoCells) -> None:
    clock, service = Clock(), two.world.service
    overview = OverviewOverCells(service.readings, clock)
    await two.tell(report=captured(700, reference="a stranger's"))  # a case of cell 0
    figures = await overview.get()
    assert figures.sums(Period.DAY)["PAID", "THB"] == Amount(3, 3 * _PRICE)
    paid = [one for one in figures.conversion if (one.subject, one.kind) == ("method", "PAID")]
    assert sum(one.counts[0] for one in paid) == 3
    assert (figures.waiting.cases, figures.cells_away) == (1, ())
    assert await overview.get() is figures, "drawn once for all who look"
    clock.now_s += 1.1
    await two.away(0)
    left = await overview.get()
    assert left.sums(Period.DAY)["PAID", "THB"] == Amount(2, 2 * _PRICE)
    assert (left.waiting.cases, left.cells_away) == (0, (0,))
    assert "Without cell 0" in figures_html(left, Period.DAY)


async def test_a_cell_that_did_not_answer_is_not_asked_for_some_seconds(two: TwoCells) -> None:
    clock = Clock()
    overview = OverviewOverCells(two.world.service.readings, clock)
    await two.away(1)
    assert (await overview.get()).cells_away == (1,)
    await two.back(1)
    clock.now_s += 1.1
    assert (await overview.get()).cells_away == (1,)
    clock.now_s += 5
    assert (await overview.get()).cells_away == ()
