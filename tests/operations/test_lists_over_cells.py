"""Lists over two cells on two databases: in one order, and one without a cell says so."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from uuid import UUID

import pytest

from payintent.api.feed_over_cells import read_feed
from payintent.api.pagination import read_feed_cursor, write_feed_cursor
from payintent.domain import ids
from payintent.domain.errors import StorageUnavailableError
from payintent.domain.event import EventType
from payintent.domain.payment import Payment
from payintent.operations.refunds import ListRefunds
from payintent.operations.search_payments import ListPayments, SearchPayments
from payintent.operations.webhooks import ListDeliveries
from payintent.payments.cancel import cancel_by_operator
from payintent.payments.list_over_cells import list_over_cells
from payintent.service import open_service
from payintent.storage.merge_lists import cells_away
from payintent.storage.payment_list import PaymentFilter
from tests.payments.refunding import asked, paid
from tests.support.cell_schema import OF_CELLS
from tests.support.cells import add_cell, copy_tables, place_merchant, until_it_answers, with_cells
from tests.support.database_proxy import DatabaseProxy
from tests.support.databases import WORLD_TEMPLATE, Databases
from tests.support.world import World

pytestmark = OF_CELLS


@dataclass(frozen=True, slots=True)
class Two:
    """The world's merchant in cell 1, which is behind a proxy, and another one in cell 0."""

    world: World
    proxy: DatabaseProxy
    other_id: int

    async def create(self, cell: int) -> Payment:
        """Make a payment in a cell."""
        return await self.world.create(**({} if cell else {"merchant_id": self.other_id}))

    async def cancelled(self) -> None:
        """Make a payment where the merchant is now, and cancel it, which is an event."""
        payment = await self.world.create()
        database = self.world.service.cells.of(payment.id)
        async with database.transaction() as tx:
            await cancel_by_operator(tx, payment.id)


@pytest.fixture
async def two(world: World, databases: Databases) -> AsyncIterator[Two]:
    """Two cells with a merchant each."""
    control_url, cell_url = world.service.settings.database_url, databases.take(WORLD_TEMPLATE)
    await add_cell(control_url, cell_url, 1)
    await place_merchant(control_url, world.merchant_id, 1)
    other = await world.other_merchant()
    proxy = DatabaseProxy(cell_url)
    await proxy.start()
    settings = with_cells(world.service.settings, {1: proxy.url})
    settings = settings.model_copy(update={"api_key_cache_s": 0.0})  # a move is seen at once
    service = await open_service(settings, {"fake": world.gateway})
    await copy_tables(service.cells)
    yield Two(replace(world, service=service), proxy, other.merchant.id)
    await service.close()
    await proxy.stop()
    databases.give_back(cell_url)


def _id(payment: Payment) -> str:
    return ids.format_id(ids.PAYMENT, payment.id)


@pytest.mark.parametrize("amount_min", [None, Decimal(1)], ids=["all", "looked through"])
async def test_pages_over_cells_have_every_payment_once_while_others_are_made(
    two: Two, amount_min: Decimal | None
) -> None:
    made = [await two.create(cell) for cell in (0, 0, 0, 0, 1, 0, 1, 1, 1, 0)]
    read: list[str] = []
    before: str | None = None
    while True:
        page = await two.world.perform(ListPayments(limit=3, before=before, amount_min=amount_min))
        assert cells_away(page) == ()
        if not page:
            break
        read += [payment.id for payment in page]
        before = read[-1]
        await two.create(len(read) % 2)
    made.sort(key=lambda payment: (payment.created_at, payment.id), reverse=True)
    assert read == [_id(payment) for payment in made]


async def test_a_search_finds_payments_in_whichever_cell_they_are(two: Two) -> None:
    world = two.world
    for cell in (0, 1):
        payment = await two.create(cell)
        session = (await world.select(payment, await _method(two, payment))).session
        for text in (
            _id(payment),
            payment.checkout_id,
            ids.format_id(ids.SESSION, session.id),
        ):
            [found] = await world.perform(SearchPayments(text=text))
            assert found.id == _id(payment)
    both = await world.perform(SearchPayments(text=payment.payer_uid))
    assert {found.merchant_id for found in both} == {world.merchant_id, two.other_id}


async def _method(two: Two, payment: Payment) -> int:
    [method] = await two.world.service.cells.control.fetch(
        "SELECT id FROM payment_method WHERE merchant_id = $1 ORDER BY id LIMIT 1",
        payment.merchant_id,
    )
    return method["id"]


async def test_lists_without_a_cell_say_so_and_have_the_rest(two: Two) -> None:
    world = two.world
    there = await paid(world)
    refund = await asked(world, there)
    stays = await two.create(0)
    lists = ListPayments(), ListRefunds(), ListDeliveries()
    whole = [await world.perform(wanted) for wanted in lists]
    assert [len(found) for found in whole] == [2, 1, 1]
    assert whole[1][0].id == ids.format_id(ids.REFUND, refund.id)
    await two.proxy.stop()
    left = [await world.perform(wanted) for wanted in lists]
    assert [[row.id for row in left[0]], *left[1:]] == [[_id(stays)], [], []]
    assert [cells_away(found) for found in left] == [(1,)] * 3
    found = await world.perform(SearchPayments(text=stays.payer_uid))
    assert ([row.id for row in found], cells_away(found)) == ([_id(stays)], (1,))
    with pytest.raises(StorageUnavailableError):
        await world.perform(SearchPayments(text=_id(there)))


async def _move(two: Two, cell: int) -> None:
    """Let the merchant have its new payments in another cell."""
    control = two.world.service.cells.control
    await control.fetch("UPDATE merchant_cell SET until = clock() WHERE until IS NULL")
    await control.fetch(
        "INSERT INTO merchant_cell (merchant_id, cell) VALUES ($1, $2)",
        two.world.merchant_id,
        cell,
    )


async def _read_page(two: Two, cursor: str | None, limit: int) -> tuple[list[UUID], str, bool]:
    cells, merchant_id = two.world.service.cells, two.world.merchant_id
    after = None if cursor is None else read_feed_cursor(cursor)
    part = await read_feed(cells, merchant_id, after, tuple(EventType), limit)
    return [event.id for event in part.events], write_feed_cursor(part.places), part.has_more


async def test_a_feed_goes_on_from_its_place_when_its_merchant_gets_another_cell(two: Two) -> None:
    world = two.world
    for _ in range(3):
        await two.cancelled()
    read, cursor, _ = await _read_page(two, None, 2)
    assert ":" not in cursor, "the place of one cell is as it was before there were cells"
    await _move(two, 0)
    for _ in range(3):
        await two.cancelled()
    for turn in ("all there", "away", "back"):
        if turn == "back":
            await two.proxy.start()
            await until_it_answers(world.service.cells.at(1))
        await two.cancelled()
        if turn == "away":
            await two.proxy.stop()  # no more creates: keys are looked up in the former cell
        while True:
            found, cursor, more = await _read_page(two, cursor, 2)
            read += found
            if not more:
                break
    read += (await _read_page(two, cursor, 9))[0]
    assert len(set(read)) == len(read) == 9
    for cell in world.service.cells:
        rows = await cell.fetch("SELECT id FROM event ORDER BY feed_position")
        in_order = [row["id"] for row in rows]
        assert [event_id for event_id in read if event_id in in_order] == in_order
    await two.proxy.stop()
    with pytest.raises(StorageUnavailableError):
        await _read_page(two, None, 2)


async def test_a_merchants_own_lists_have_the_payments_of_its_former_cell(two: Two) -> None:
    world = two.world
    made = [await world.create() for _ in range(3)]
    await _move(two, 0)
    made += [await world.create() for _ in range(3)]
    read: list[UUID] = []
    before: tuple[datetime, UUID] | None = None
    while True:
        wanted = PaymentFilter(merchant_id=world.merchant_id, before=before, limit=2)
        page = await list_over_cells(world.service.cells, world.service.readings, wanted)
        read += [snapshot.payment.id for snapshot in page.payments]
        before = page.following
        if before is None:
            break
    made.sort(key=lambda payment: (payment.created_at, payment.id), reverse=True)
    assert read == [payment.id for payment in made]
    await two.proxy.stop()
    wanted = PaymentFilter(merchant_id=world.merchant_id)
    left = await list_over_cells(world.service.cells, world.service.readings, wanted)
    assert (len(left.payments), left.is_whole) == (3, False)
