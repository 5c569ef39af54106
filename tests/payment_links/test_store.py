"""Reading a link takes a limited time, however many payments buyers have created."""

from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from payintent.payment_links import store as link_store
from payintent.payment_links.model import PaymentLink
from tests.payment_links.link_setup import make_link
from tests.support.plans import Recorder, generic_plan, nodes, plan
from tests.support.rows import write_payments
from tests.support.world import World

pytestmark = pytest.mark.full

_PAYMENTS, _COUNTED = 12_000, 10_000


@pytest_asyncio.fixture(name="link")
async def busy_link(world: World, raw: asyncpg.Connection) -> AsyncIterator[PaymentLink]:
    """A link without a limit. Every other payment of the link has ended unpaid."""
    link = await make_link(world, amount=None)
    await write_payments(world, _PAYMENTS, statuses=("PAID", "EXPIRED"), currencies=("THB",))
    await raw.execute(
        """
        INSERT INTO payment_link_use (link_id, slot, slots, payment_id)
        SELECT l.id, row_number() OVER (ORDER BY p.id), l.slots, p.id
        FROM payment p
        JOIN payment_link l ON l.merchant_id = p.merchant_id
        """
    )
    await raw.execute("ANALYZE")
    yield link


async def test_only_the_latest_payments_of_a_link_are_counted(
    world: World, raw: asyncpg.Connection, link: PaymentLink
) -> None:
    stored = await link_store.get(world.database, link.id)
    assert stored is not None
    assert stored.uses == _COUNTED // 2
    recorder = Recorder()
    await link_store.get(recorder, link.id)
    lookups = [
        node["Actual Loops"] * node["Actual Rows"]
        for node in nodes(await plan(raw, recorder))
        if node.get("Relation Name") == "payment"
    ]
    assert sum(lookups) == _COUNTED


async def test_no_statement_scans_the_payments_of_all_merchants(
    raw: asyncpg.Connection, link: PaymentLink
) -> None:
    recorder = Recorder()
    for read in (
        link_store.get(recorder, link.id),
        link_store.list_for_merchant(recorder, link.merchant_id, None, 100),
        link_store.has_free_slot(recorder, link.id),
        link_store.take_released_slot(recorder, link.id, link.id),
    ):
        await read
        scanned = {
            node.get("Relation Name")
            for node in nodes(await generic_plan(raw, recorder.query))
            if node["Node Type"] == "Seq Scan"
        }
        assert "payment" not in scanned, recorder.query
