"""The clock of a test side that was moved: what waits in each of its cells is moved alike."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from payintent.domain.errors import StorageUnavailableError
from payintent.operations.keys import IssueApiKey
from payintent.storage import test_clock_cells
from tests.support.cell_schema import OF_CELLS
from tests.support.cells import copy_tables
from tests.support.databases import Databases
from tests.support.serving import serving_api
from tests.support.two_cells import TwoCells, two_cells
from tests.support.world import Answer, Api, World

pytestmark = OF_CELLS


@dataclass
class Served:
    """A test side of two cells, as its server calls."""

    two: TwoCells
    api: Api
    lives_until: dict[UUID, datetime] = field(default_factory=dict)

    async def create(self, cell: int) -> None:
        """Make a payment where the merchant is, which is that cell."""
        payment = await self.two.world.create(merchant_id=self.api.world.merchant_id)
        assert self.two.world.service.cells.number_of(payment.id) == cell
        self.lives_until[payment.id] = await self._expiry(payment.id)

    async def moved(self) -> list[float]:
        """Return by how many seconds each payment was moved, in the order of their creates."""
        return [
            (before - await self._expiry(payment_id)).total_seconds()
            for payment_id, before in self.lives_until.items()
        ]

    async def _expiry(self, payment_id: UUID) -> datetime:
        database = self.two.world.service.cells.of(payment_id)
        row = await database.row("SELECT expires_at FROM payment WHERE id = $1", payment_id)
        assert row is not None
        return row["expires_at"]

    async def advance(self, seconds: int) -> Answer:
        """Move the clock on."""
        path, body = "/v1/test/clock/advance", {"seconds": seconds}
        return await self.api.send("POST", path, json=body, headers=self.api.bearer())

    async def read(self) -> Any:
        """Read the clock."""
        answer = await self.api.send("GET", "/v1/test/clock", headers=self.api.bearer())
        return answer.json["advanced_seconds"]


class _Killed(AsyncExitStack):
    """Lets nothing but cell 0 commit, as if the process had been killed after that."""

    async def __aexit__(self, *_: object) -> bool:
        error = StorageUnavailableError("killed")
        await super().__aexit__(type(error), error, None)
        raise error


@pytest.fixture
async def served(world: World, databases: Databases) -> AsyncIterator[Served]:
    async with two_cells(world, databases, api_key_cache_s=0.0) as two:
        test = await two.world.perform(IssueApiKey(merchant_id=world.merchant_id, test=True))
        await copy_tables(two.world.service.cells)
        side = replace(two.world, merchant_id=test.merchant_id, api_key=test.api_key)
        async with serving_api(side.service.settings, side) as api:
            yield Served(two, api)


async def test_what_waits_in_a_former_cell_is_moved_as_what_waits_in_the_present_one(
    served: Served,
) -> None:
    await served.create(1)
    assert (await served.advance(600)).json["advanced_seconds"] == 600
    await served.two.move(0)
    await served.create(0)
    answer = (await served.advance(60)).json
    assert (answer["advanced_seconds"], answer["moved"]["payments"]) == (660, 2)
    assert await served.moved() == [660, 60]
    await served.two.move(1)
    await served.create(1)
    assert (await served.advance(5)).json["moved"]["payments"] == 3
    assert await served.moved() == [665, 65, 5]
    assert await served.read() == 665


async def test_a_cell_that_a_clock_left_behind_catches_up_when_it_is_moved_next(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.create(1)
    await served.two.move(0)
    await served.create(0)
    with monkeypatch.context() as patch:
        patch.setattr(test_clock_cells, "AsyncExitStack", _Killed)
        assert (await served.advance(60)).status == 503
    assert await served.moved() == [0, 60]
    assert await served.read() == 60
    assert (await served.advance(60)).json["advanced_seconds"] == 120
    assert await served.moved() == [120, 120]


async def test_a_cell_that_a_clock_left_behind_catches_up_before_its_merchant_comes_back(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.create(1)
    await served.two.move(0)
    with monkeypatch.context() as patch:
        patch.setattr(test_clock_cells, "AsyncExitStack", _Killed)
        assert (await served.advance(60)).status == 503
    await served.two.move(1)
    assert await served.moved() == [60]
    await served.create(1)
    assert (await served.advance(5)).status == 200
    assert await served.moved() == [65, 5]


@pytest.mark.parametrize("away", [0, 1])
async def test_a_clock_stands_while_a_cell_of_its_merchant_is_away_and_is_moved_once_then(
    served: Served, away: int
) -> None:
    await served.create(1)
    await served.two.move(0)
    await served.create(0)
    await served.two.away(away)
    assert (await served.advance(60)).status == 503
    await served.two.back(away)
    assert await served.moved() == [0, 0]
    assert (await served.advance(60)).json["advanced_seconds"] == 60
    assert await served.moved() == [60, 60]


async def test_a_cell_that_a_merchant_comes_into_first_begins_where_its_clock_stands(
    served: Served,
) -> None:
    await served.two.move(0)  # it had nothing in cell 1, which is not one of its cells then
    assert (await served.advance(600)).status == 200
    await served.two.move(1)
    await served.create(1)
    assert (await served.advance(5)).json["advanced_seconds"] == 605
    assert await served.moved() == [5]
