"""The ledger of two cells: balances are added up, each is held to the facts of its cell."""

from collections.abc import AsyncIterator

import pytest

from payintent.operations.ledger import CheckLedger, ShowLedger
from payintent.storage.merge_lists import cells_away
from payintent.worker_metrics import LEDGER_IMBALANCE, check_ledger
from tests.support.cell_schema import OF_CELLS
from tests.support.databases import Databases
from tests.support.two_cells import TwoCells, two_cells
from tests.support.world import ACTOR, World

pytestmark = OF_CELLS
_PAID = 159000


@pytest.fixture
async def two(world: World, databases: Databases) -> AsyncIterator[TwoCells]:
    """A payment of each of two merchants, one in each cell, paid at one gateway account."""
    async with two_cells(world, databases) as made:
        other = (await made.world.other_merchant()).merchant.id
        for merchant_id in (other, made.world.merchant_id):
            await made.pay(merchant_id)
        yield made


async def test_an_account_is_added_up_over_the_cells_that_answer(two: TwoCells) -> None:
    clearing = f"gateway_clearing:{two.world.account_id}"

    async def shown() -> tuple[str, str, str]:
        [found] = [one for one in await two.world.perform(ShowLedger()) if one.account == clearing]
        return found.debits_minor, found.credits_minor, found.balance_minor

    assert await shown() == (str(2 * _PAID), "0", str(2 * _PAID))
    await two.away(1)
    assert await shown() == (str(_PAID), "0", str(_PAID))
    assert cells_away(await two.world.perform(ShowLedger())) == (1,)


async def test_a_difference_is_found_in_the_cell_that_has_it(two: TwoCells) -> None:
    service = two.world.service
    assert await two.world.perform(CheckLedger()) == []
    for cell, amount in ((0, 7), (1, -7)):  # in sum there is none
        await service.cells.at(cell).fetch(
            """
            INSERT INTO ledger_entry (fact_id, leg, currency, fact, debit, credit, amount)
            SELECT gen_random_uuid(), 'whole', 'THB', 'capture',
                CASE WHEN $1 > 0 THEN 'bank' ELSE 'fee_income' END,
                CASE WHEN $1 > 0 THEN 'fee_income' ELSE 'bank' END, abs($1::int)
            """,
            amount,
        )
    found = await two.world.perform(CheckLedger())
    assert {
        (one.account, one.cell, one.ledger_minor) for one in found if one.account == "bank"
    } == {
        ("bank", 0, "7"),
        ("bank", 1, "-7"),
    }
    await check_ledger(service)
    assert LEDGER_IMBALANCE._value.get() == 4
    await two.away(0)
    left = await service.run_operation(CheckLedger(), ACTOR)
    assert {one.cell for one in left} == {1}
    assert cells_away(left) == (0,)
