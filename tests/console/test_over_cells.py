"""Pages over two cells: what a merchant of cell 1 has is there, and a cell that is away is said."""

from collections.abc import AsyncIterator

import pytest

from payintent.domain.delivery import CircuitReport
from payintent.operations.merchant_list import ShowChecklist
from payintent.operations.merchants import SetCallbackUrl
from payintent.operations.webhooks import ListEndpoints
from payintent.storage import endpoint_outages
from payintent.storage.configuration import list_watched_chains
from tests.console.test_payments import attempts, cancelled, event_of
from tests.console.visitor import signed_in, words
from tests.storage.test_cell_facts import CURSORS
from tests.support.cell_schema import OF_CELLS
from tests.support.cells import copy_tables
from tests.support.databases import Databases
from tests.support.operator_port import operator_port
from tests.support.two_cells import TwoCells, two_cells
from tests.support.world import Api, World

pytestmark = OF_CELLS
_HOOKS = "https://93.184.216.34/hooks"
_MISSING = "Cell 1 does not answer: what it has is missing here."


@pytest.fixture
async def two(world: World, databases: Databases) -> AsyncIterator[tuple[TwoCells, Api]]:
    async with two_cells(world, databases) as made:
        service = made.world.service
        async with operator_port(service.settings, made.world, service) as operator:
            yield made, operator


async def _fail(made: TwoCells) -> None:
    """Let an endpoint of cell 1 fail, so that its circuit is open there."""
    world = made.world
    await world.perform(SetCallbackUrl(merchant_id=world.merchant_id, callback_url=_HOOKS))
    await copy_tables(world.service.cells)
    await attempts(world, await event_of(world, await cancelled(world)), 1, next_wait_s=None)
    report = CircuitReport(merchant_id=world.merchant_id, open_s=30, detail="timeout: no answer")
    await endpoint_outages.open_circuit(world.database, report)


async def test_an_endpoint_is_as_the_cell_of_its_merchant_has_it(
    two: tuple[TwoCells, Api],
) -> None:
    made, operator = two
    await _fail(made)
    other = await made.world.other_merchant()
    visitor = await signed_in(operator)
    shown = words(await visitor.get("/webhooks"))
    assert "Nimbus Books failing open Why" in shown
    assert "timeout: no answer" in shown
    assert "0 of 1" in shown
    listed = await made.world.perform(ListEndpoints())
    assert [row.merchant_id for row in listed] == sorted(
        (made.world.merchant_id, other.merchant.id)
    )
    assert [row.dead for row in listed] == [1, 0]
    await made.away(1)
    away = words(await visitor.get("/webhooks"))
    assert _MISSING in away
    assert "Nimbus Books not known" in away
    assert "Other" in away
    await made.back(1)


async def test_an_endpoint_of_a_merchant_that_was_moved_has_what_both_cells_have(
    two: tuple[TwoCells, Api],
) -> None:
    made, _ = two
    world = made.world
    await _fail(made)
    control = world.service.cells.control
    await control.fetch("UPDATE merchant_cell SET until = clock() WHERE until IS NULL")
    await control.fetch(
        "INSERT INTO merchant_cell (merchant_id, cell) VALUES ($1, 0)", world.merchant_id
    )
    await copy_tables(world.service.cells)
    world.service.cells.forget_place(world.merchant_id)
    [before] = await world.perform(ListEndpoints())
    assert (before.dead, before.attempts, before.trips, before.incomplete) == (1, 1, 1, False)
    report = CircuitReport(merchant_id=world.merchant_id, open_s=3_000, detail="refused")
    for _ in range(2):
        await endpoint_outages.open_circuit(control, report)
    [both] = await world.perform(ListEndpoints())
    assert (both.dead, both.attempts, both.trips, both.open_detail) == (1, 1, 2, "refused")
    await made.away(1)
    [left] = await world.perform(ListEndpoints())
    assert (left.dead, left.attempts, left.trips, left.incomplete) == (0, 0, 2, True)
    await made.back(1)


async def test_what_gateways_did_in_a_cell_that_is_away_is_said_to_be_missing(
    two: tuple[TwoCells, Api],
) -> None:
    made, operator = two
    visitor = await signed_in(operator)
    assert "does not answer: what" not in words(await visitor.get("/gateways"))
    await made.away(1)
    for path in ("/gateways", "/operations/provider/health", "/operations/payment/list"):
        assert _MISSING in words(await visitor.get(path)), path
    await made.back(1)


async def test_a_method_on_a_chain_is_offered_where_the_cell_of_its_merchant_watches_it(
    two: tuple[TwoCells, Api],
) -> None:
    made, _ = two
    cells, merchant_id = made.world.service.cells, made.world.merchant_id
    [chain, *_] = await cells.control.fetch("SELECT slug FROM chain ORDER BY slug LIMIT 1")
    for cell in cells:
        await cell.fetch("DELETE FROM chain_cursor")
    await cells.control.fetch(CURSORS, chain["slug"], 1, None)
    assert await list_watched_chains(cells, merchant_id) == ()
    await cells.at(1).fetch(CURSORS, chain["slug"], 1, None)
    await cells.control.fetch("DELETE FROM chain_cursor")
    assert await list_watched_chains(cells, merchant_id) == (chain["slug"],)
    await made.away(1)
    assert await list_watched_chains(cells, merchant_id) == ()
    await made.back(1)


async def test_the_way_into_service_knows_a_payment_in_whichever_cell_it_was_paid(
    two: tuple[TwoCells, Api],
) -> None:
    made, _ = two

    async def tried() -> tuple[bool, str]:
        steps = await made.world.perform(ShowChecklist(merchant_id=made.world.merchant_id))
        [step] = [step for step in steps if step.step == "A payment was made"]
        return step.done, step.says

    assert await tried() == (False, "none was paid: try the whole flow")
    await made.pay(made.world.merchant_id)
    assert await tried() == (True, "at least one was paid")
    await made.away(1)
    assert await tried() == (False, "not known: cell 1 does not answer")
    await made.back(1)
