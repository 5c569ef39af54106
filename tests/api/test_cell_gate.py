"""A cell that freezes or refuses takes no place that a request of another cell needs."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

import pytest

from tests.support.cell_schema import OF_CELLS
from tests.support.cells import copy_tables
from tests.support.databases import Databases
from tests.support.patience import PATIENCE_S, until
from tests.support.serving import serving
from tests.support.two_cells import TwoCells, two_cells
from tests.support.world import Answer, Api, World, free_port

pytestmark = OF_CELLS
_PLACES = 3
_LONG_S = 4 * PATIENCE_S  # nothing of a frozen cell ends by itself


@dataclass
class Served:
    """One API process over two cells, as a merchant of each calls it."""

    two: TwoCells
    cell_0: Api
    cell_1: Api

    def creating(self, count: int) -> list[asyncio.Task[Answer]]:
        """Begin creates in cell 1."""
        return [asyncio.create_task(self.cell_1.create()) for _ in range(count)]


@pytest.fixture
async def served(world: World, databases: Databases) -> AsyncIterator[Served]:
    changes = {
        "requests_max": _PLACES,
        "request_wait_s": _LONG_S,
        "database_acquire_timeout_s": _LONG_S,
        "database_statement_timeout_ms": int(_LONG_S * 1000),
    }
    async with two_cells(world, databases, **changes) as two:
        other = await two.world.other_merchant()
        await copy_tables(two.world.service.cells)
        port = free_port()
        base = f"http://127.0.0.1:{port}"
        async with (
            serving(two.world.service.settings, two.world.service, port),
            Api(base, replace(two.world, api_key=other.api_key)) as cell_0,
            Api(base, two.world) as cell_1,
        ):
            for api in (cell_0, cell_1):
                assert (await api.create()).status == 201
            yield Served(two, cell_0, cell_1)


async def _payments(served: Served) -> int:
    return (await served.two.count(1))["payment"]


async def test_a_frozen_cell_holds_no_place_and_what_waits_for_it_is_bounded_and_not_lost(
    served: Served,
) -> None:
    await served.two.away(1, frozen=True)
    try:
        creating = served.creating(5 * _PLACES)
        answer = await asyncio.wait_for(served.cell_0.create(), PATIENCE_S)
        assert answer.status == 201
        await until(
            lambda: sum(task.done() for task in creating) >= 3 * _PLACES,
            "what is too much for a frozen cell is refused",
        )
        refused = [task.result() for task in creating if task.done()]
        assert {one.status for one in refused} == {503}
        assert all(int(one.headers["Retry-After"]) >= 1 for one in refused)
        for _ in range(_PLACES):
            assert (await asyncio.wait_for(served.cell_0.create(), PATIENCE_S)).status == 201
    finally:
        await served.two.back(1)
    statuses = [answer.status for answer in await asyncio.gather(*creating)]
    assert statuses.count(201) >= 1
    assert await _payments(served) == 1 + statuses.count(201)


async def test_a_cell_that_refuses_is_tried_by_one_at_a_time_and_found_again(
    served: Served,
) -> None:
    await served.two.away(1)
    assert {answer.status for answer in await asyncio.gather(*served.creating(_PLACES))} == {503}
    assert (await asyncio.wait_for(served.cell_0.create(), PATIENCE_S)).status == 201
    await served.two.back(1)

    async def is_found() -> bool:
        return (await served.cell_1.create()).status == 201

    await until(is_found, "cell 1 is used again")
    statuses: Sequence[int] = [one.status for one in await asyncio.gather(*served.creating(9))]
    assert statuses == [201] * 9
    assert await _payments(served) == 1 + 1 + 9


async def test_payments_of_another_cell_go_on_while_control_is_frozen(served: Served) -> None:
    await served.two.away(0, frozen=True)
    try:
        for _ in range(2):
            creating = asyncio.gather(*served.creating(2 * _PLACES))
            answers = await asyncio.wait_for(creating, PATIENCE_S)
            assert [answer.status for answer in answers] == [201] * 2 * _PLACES
    finally:
        await served.two.back(0)
    assert await _payments(served) == 1 + 4 * _PLACES
