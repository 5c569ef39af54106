"""A cell's server is gone under load: nothing is lost, nothing is doubled, others feel nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

import pytest

from payintent.domain.errors import ErrorCode, RefusedError, StorageUnavailableError
from payintent.operations.ledger import CheckLedger
from tests.support.cell_schema import OF_CELLS
from tests.support.cells import copy_tables
from tests.support.databases import Databases
from tests.support.fakes import captured
from tests.support.patience import until
from tests.support.two_cells import TwoCells, two_cells
from tests.support.world import World

pytestmark = OF_CELLS
T = TypeVar("T")
_BUYERS = 3  # at a time, of each merchant
_MORE = 12  # payments between what happens
_TWICE = 2  # gateways tell everything more than once
_FACTS = """
    SELECT p.status, (SELECT count(*) FROM capture c WHERE c.payment_id = p.id) AS captures,
        (SELECT count(*) FROM event e WHERE e.payment_id = p.id) AS events
    FROM payment p
    WHERE p.merchant_id = $1
"""


@dataclass
class Shop:
    """Buyers of a merchant, who pay one thing after the other until all of it has ended."""

    two: TwoCells
    merchant_id: int
    method: int
    paid: list[UUID] = field(default_factory=list[UUID])
    left: int = 0  # by buyers whose choice was cut off
    failures: int = 0

    async def insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask again, as merchants, buyers and gateways do, until the database answers."""
        while True:
            try:
                return await ask()
            except StorageUnavailableError:
                self.failures += 1
                await asyncio.sleep(0.02)

    async def sell(self) -> None:
        world = self.two.world
        request = world.request(merchant_id=self.merchant_id)
        created = await self.insist(lambda: world.service.payment_creator.create(request))
        payment = created.payment
        try:
            chosen = await self.insist(lambda: world.select(payment, self.method))
        except RefusedError as error:  # what was cut off is under way until a worker asks about it
            if error.code is not ErrorCode.CONFLICT:
                raise
            self.left += 1
            return
        report = captured(159000, reference=f"cap-{payment.id}")
        for _ in range(_TWICE):
            await self.insist(lambda: self.two.tell(session_id=chosen.session.id, report=report))
        self.paid.append(payment.id)

    async def sell_until(self, closed: asyncio.Event) -> None:
        while not closed.is_set():
            await self.sell()

    async def more(self) -> None:
        """Wait until more has been paid."""
        seen = len(self.paid)
        await until(lambda: len(self.paid) >= seen + _MORE, "more is paid")

    async def facts(self, cell: int) -> list[tuple[str, int, int]]:
        """Give the status, captures and events of each payment in a cell."""
        connection = await self.two.direct(cell)
        rows = await connection.fetch(_FACTS, self.merchant_id)
        await connection.close()
        return [tuple(row) for row in rows]


async def _shops(two: TwoCells) -> tuple[Shop, Shop]:
    """Give a merchant of each cell."""
    other = (await two.world.other_merchant()).merchant.id
    await copy_tables(two.world.service.cells)
    [row] = await two.world.service.cells.control.fetch(
        "SELECT id FROM payment_method WHERE merchant_id = $1 ORDER BY position LIMIT 1", other
    )
    return Shop(two, other, row["id"]), Shop(two, two.world.merchant_id, two.world.card)


@pytest.mark.parametrize("cell", [1, 0])
async def test_a_cell_whose_server_is_gone_under_load_loses_and_doubles_nothing(
    world: World, databases: Databases, cell: int
) -> None:
    async with two_cells(world, databases) as two:
        shops, closed = await _shops(two), asyncio.Event()
        async with asyncio.TaskGroup() as work:
            for shop in shops:
                for _ in range(_BUYERS):
                    work.create_task(shop.sell_until(closed))
            for shop in shops:
                await shop.more()
            await two.away(cell)
            await shops[1 - cell].more()
            await two.back(cell)
            for shop in shops:
                await shop.more()
            closed.set()
        assert shops[cell].failures > 0
        assert shops[1 - cell].failures == 0
        for number, shop in enumerate(shops):
            facts = await shop.facts(number)
            assert facts.count(("PAID", 1, 1)) == len(shop.paid)
            left = {fact for fact in facts if fact != ("PAID", 1, 1)}
            assert left <= {("PENDING", 0, 0), ("PROCESSING", 0, 0)}
            assert len(facts) - len(shop.paid) == shop.left
            assert shop.left <= (_BUYERS if number == cell else 0)
            assert await shop.facts(1 - number) == []
        assert await two.world.perform(CheckLedger()) == []
