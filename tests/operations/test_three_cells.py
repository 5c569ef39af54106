"""A merchant that was in three cells: all that it had in each of them goes on, and counts once."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from payintent.api.feed_over_cells import read_feed
from payintent.api.pagination import read_feed_cursor, write_feed_cursor
from payintent.domain import ids
from payintent.domain.errors import ErrorCode, RefusedError, StorageUnavailableError
from payintent.domain.event import EventType
from payintent.domain.fraud import FraudDeniedError, FraudRuleKind, RiskLevel
from payintent.domain.gateway import DisputeReport, DisputeState
from payintent.domain.payment import Payment
from payintent.operations.cell_changes import CloseCell, DrainCell
from payintent.operations.disputes import ListDisputes
from payintent.operations.fraud import AddFraudRule, ListFraudDecisions
from payintent.operations.ledger import CheckLedger, ShowLedger
from payintent.operations.merchants import SetCallbackUrl
from payintent.operations.payouts import ImportPayouts, RecordPayout
from payintent.operations.refunds import ListRefunds
from payintent.operations.search_payments import ListPayments, SearchPayments
from payintent.operations.statements import ListStatements
from payintent.operations.webhooks import ListDeliveries, ListEndpoints
from payintent.payments.carry_balances import carry_due
from payintent.payments.close_statements import close_due_days
from payintent.payments.list_over_cells import list_over_cells
from payintent.payments.statements_over_cells import list_balances
from payintent.storage import refunds, statements
from payintent.storage.cells import Cells
from payintent.storage.merge_lists import cells_away
from payintent.storage.payment_list import PaymentFilter
from tests.payments.refunding import DONE, asked
from tests.support.cell_schema import OF_CELLS
from tests.support.cells import copy_tables
from tests.support.databases import Databases
from tests.support.fakes import captured
from tests.support.patience import PATIENCE_S
from tests.support.two_cells import SeveralCells, several_cells
from tests.support.workers import working
from tests.support.world import World
from tests.webhooks.test_dispatcher import Shop, listening, until

pytestmark = OF_CELLS
_HOUR_S, _DAY_S = 3_600, 86_400
_ALL = (0, 1, 2)
_HEADER = "merchant,amount,currency,chain,reference,paid_on"


@dataclass(frozen=True)
class Three:
    """The world's merchant, in cell 0 at first; nobody copies but the moves themselves."""

    cells_of: SeveralCells

    @property
    def world(self) -> World:
        return self.cells_of.world

    @property
    def cells(self) -> Cells:
        return self.world.service.cells

    async def pay(self) -> Payment:
        return await self.cells_of.pay(self.world.merchant_id)

    async def travel(self, *path: int) -> list[Payment]:
        """Move through cells, with a payment in each, and one in that where it begins."""
        made = [await self.pay()]
        for cell in path:
            await self.cells_of.move(cell)
            made.append(await self.pay())
        return made

    async def owed(self) -> tuple[int, ...]:
        """Return what each cell owes the merchant."""
        found = list[int]()
        for cell in self.cells:
            balances = await statements.list_balances(cell, self.world.merchant_id)
            found.append(sum(balance.amount_minor for balance in balances))
        return tuple(found)

    async def balance(self) -> int:
        """Return what the merchant is owed, as its server reads it."""
        found = await list_balances(self.cells, self.world.merchant_id)
        return sum(balance.amount_minor for balance in found)

    async def pay_out(self, amount_minor: int, reference: str) -> Any:
        merchant_id, amount = self.world.merchant_id, f"{amount_minor / 100:.2f}"
        return await self.world.perform(
            RecordPayout(
                merchant_id=merchant_id, amount=amount, currency="THB", reference=reference
            )
        )

    async def whole_books(self) -> None:
        """Expect that nothing is lost or doubled between the ledgers."""
        await self.world.move_clock(3 * _DAY_S)
        assert await self.world.perform(CheckLedger()) == []
        found = await self.world.perform(ShowLedger())
        assert sum(int(row.balance_minor) for row in found if row.account == "cell_clearing") == 0


@pytest.fixture
async def three(world: World, databases: Databases) -> AsyncIterator[Three]:
    made = several_cells(world, databases, (1, 2), api_key_cache_s=0.0)
    async with made as cells_of:
        yield Three(cells_of)


def _id(payment: Payment) -> str:
    return ids.format_id(ids.PAYMENT, payment.id)


async def _own_list(three: Three) -> tuple[list[UUID], bool]:
    """Read the merchant's own list by pages of two."""
    cells, readings = three.cells, three.world.service.readings
    read, before, is_whole = list[UUID](), None, True
    while True:
        wanted = PaymentFilter(merchant_id=three.world.merchant_id, before=before, limit=2)
        page = await list_over_cells(cells, readings, wanted)
        read += [snapshot.payment.id for snapshot in page.payments]
        is_whole &= page.is_whole
        before = page.following
        if before is None:
            return read, is_whole


async def test_lists_search_disputes_and_refunds_are_of_all_three_cells_or_say_what_they_lack(
    three: Three,
) -> None:
    world = three.world
    made = await three.travel(1, 2)
    assert [ids.cell_of_timed(payment.id) for payment in made] == [0, 1, 2]
    for payment in made:
        report = DisputeReport(
            reference=f"du-{payment.id}",
            capture=f"cap-{payment.id}",
            state=DisputeState.OPEN,
            amount_minor=1_000,
            currency="THB",
        )
        assert (await three.cells_of.tell(dispute=report)).payment_id == payment.id
        await asked(world, payment, "10.00")
        found = await world.service.payment_lookup.get_merchant_payment(
            world.merchant_id, payment.id
        )
        assert found.payment.id == payment.id
    newest_first = [payment.id for payment in reversed(made)]
    assert await _own_list(three) == (newest_first, True)
    merchant_id = world.merchant_id
    wanted = (
        ListPayments(merchant_id=merchant_id),
        SearchPayments(text=made[0].payer_uid),
        ListDisputes(merchant_id=merchant_id),
        ListRefunds(merchant_id=merchant_id),
        ListDeliveries(merchant_id=merchant_id),
    )
    for each in wanted:
        listed = await world.perform(each)
        assert (len(listed), cells_away(listed)) == (3, ()), each
    await three.cells_of.away(1)
    for each in wanted:
        listed = await world.perform(each)
        assert (len(listed), cells_away(listed)) == (2, (1,)), each
    assert await _own_list(three) == ([newest_first[0], newest_first[2]], False)
    with pytest.raises(StorageUnavailableError):
        await three.balance()
    await three.cells_of.away(2)
    assert await _own_list(three) == ([newest_first[2]], False)


async def test_what_was_denied_and_how_endpoints_do_is_of_all_three_cells(three: Three) -> None:
    world = three.world
    await world.perform(
        AddFraudRule(
            kind=FraudRuleKind.PAYER,
            value="buyer-2",
            code="NO",
            level=RiskLevel.CRITICAL,
            score=100,
        )
    )
    await copy_tables(three.cells)
    for cell in _ALL:
        if cell:
            await three.cells_of.move(cell)
        await three.pay()
        with pytest.raises(FraudDeniedError):
            await world.service.fraud_screening.create_payment(world.request(payer_uid="buyer-2"))
    wanted = ListFraudDecisions(merchant_id=world.merchant_id)
    endpoints = ListEndpoints(merchant_id=world.merchant_id)
    for away, count in ((), 3), ((1,), 2):
        if away:
            await three.cells_of.away(*away)
        denied = await world.perform(wanted)
        assert (len(denied), cells_away(denied)) == (count, away)
        assert denied == sorted(denied, key=lambda each: each.decided_at, reverse=True)
        found = await world.perform(endpoints)
        assert ([each.skipped for each in found], cells_away(found)) == ([count], away)


async def test_statements_of_three_cells_add_up_to_what_is_owed(three: Three) -> None:
    await three.travel(1, 2)
    owed = await three.balance()
    assert await three.owed() == (0, 0, owed)
    await three.world.move_clock(2 * _DAY_S)
    for database in three.cells:
        while await close_due_days(database):
            pass
    listed = await three.world.perform(ListStatements(merchant_id=three.world.merchant_id))
    closing = sorted(int(statement.closing.replace(".", "")) for statement in listed)
    assert closing == [0, 0, owed]
    assert sum(int(each.adjustments.replace(".", "")) for each in listed) == 0
    await three.whole_books()


async def test_a_refund_in_the_first_cell_after_the_second_move_is_done_there_and_owed_in_the_last(
    three: Three,
) -> None:
    world = three.world
    first, *_ = await three.travel(1, 2)
    owed = await three.balance()
    refund = await asked(world, first, "100.00")
    assert ids.cell_of_timed(refund.id) == 0
    [item] = await refunds.claim_due(three.cells.at(0), 100, 60, [])
    await world.service.refund_sender.process(item)
    assert (await three.cells_of.tell(refund_id=refund.id, refund=DONE)).payment_id == first.id
    found = await world.service.payment_lookup.get_merchant_payment(world.merchant_id, first.id)
    assert found.payment.status == "PARTIALLY_REFUNDED"
    assert (await three.owed(), await three.balance()) == ((-10_000, 0, owed), owed - 10_000)
    with pytest.raises(RefusedError, match="is owed"):
        await three.pay_out(owed - 9_999, "bank 1")
    await three.pay_out(owed - 10_000, "bank 1")
    assert await three.owed() == (0, 0, 0)
    await three.whole_books()


@pytest.mark.parametrize("path", [(1, 2), (2, 1), (2, 1, 0), (1, 2, 1), (1, 2, 0, 1)])
async def test_a_payout_is_held_to_refunds_in_every_cell_however_old_its_copy_is(
    three: Three, path: tuple[int, ...]
) -> None:
    """A cell that the merchant left may take a later one for the present one."""
    made = await three.travel(*path)
    owed = await three.balance()
    for number, payment in enumerate(made[:-1], start=1):
        await asked(three.world, payment, f"{number}.00")
        owed -= 100 * number
    assert await three.balance() == owed
    with pytest.raises(RefusedError, match="is owed"):
        await three.pay_out(owed + 1, "bank 1")
    await three.pay_out(owed, "bank 1")
    assert await three.owed() == (0, 0, 0)
    # What is refunded after all was paid out is a debt, which goes along.
    await asked(three.world, made[0], "50.00")
    await three.cells_of.move((path[-1] + 1) % 3)
    assert await three.balance() == -5_000
    await three.world.move_clock(2 * _DAY_S)
    await copy_tables(three.cells)
    for cell in _ALL:
        await carry_due(three.cells, cell)
    assert sorted(await three.owed()) == [-5_000, 0, 0]
    await three.whole_books()


async def test_a_payout_that_was_recorded_in_a_former_cell_is_not_recorded_again(
    three: Three,
) -> None:
    merchant_id = three.world.merchant_id
    await three.pay()
    await three.pay_out(10_000, "bank 0")
    for cell in (1, 2):
        await three.cells_of.move(cell)
        await three.pay_out(10_000, f"bank {cell}")
    await three.pay()
    owed = await three.balance()
    for cell in _ALL:
        with pytest.raises(RefusedError, match=f"bank {cell}.* is recorded already") as refused:
            await three.pay_out(10_000, f"bank {cell}")
        assert refused.value.code is ErrorCode.CONFLICT
    lines = [f"{merchant_id},100.00,THB,,bank {cell},2026-11-27" for cell in (0, 1, 2, 3)]
    done = await three.world.perform(ImportPayouts(lines=[_HEADER, *lines]))
    assert (done.recorded, done.recorded_before) == (1, 3)
    assert await three.balance() == owed - 10_000
    other = f"{merchant_id},100.01,THB,,bank 1,2026-11-27"
    with pytest.raises(RefusedError, match=r"line 2: .*bank 1.* with another amount"):
        await three.world.perform(ImportPayouts(lines=[_HEADER, other]))


async def test_payments_that_were_open_during_two_moves_are_paid_and_told_by_their_cells(
    three: Three,
) -> None:
    world = three.world
    async with listening(Shop(secrets=[world.callback_secret])) as shop:
        await world.perform(SetCallbackUrl(merchant_id=world.merchant_id, callback_url=shop.url))
        chosen = list[tuple[Payment, Any]]()
        for cell in _ALL:
            if cell:
                await three.cells_of.move(cell)
            payment = await world.create()
            chosen.append((payment, (await world.select(payment)).session))
        for payment, session in chosen:
            report = captured(159000, reference=f"cap-{payment.id}")
            assert (await three.cells_of.tell(session_id=session.id, report=report)).fresh
        async with working(world.service):
            await until(lambda: len(set(shop.ids)) == 3, "each cell has sent its event")
    for cell in _ALL:
        [event] = await three.cells.at(cell).fetch("SELECT id, payment_id FROM event")
        assert str(event["id"]) in shop.ids
        assert event["payment_id"] == chosen[cell][0].id


async def test_keys_of_each_former_cell_are_replayed_for_a_day_and_asked_for_no_longer(
    three: Three,
) -> None:
    world, creator = three.world, three.world.service.payment_creator
    requests = [world.request() for _ in _ALL]
    made = [(await creator.create(requests[0])).payment]
    for cell in (1, 2):
        await three.cells_of.move(cell)
        made.append((await creator.create(requests[cell])).payment)
    assert [ids.cell_of_timed(payment.id) for payment in made] == [0, 1, 2]
    for back in (None, 0, 1):
        if back is not None:
            await three.cells_of.move(back)
        for payment, request in zip(made, requests, strict=True):
            again = await creator.create(request)
            assert (again.payment, again.replayed) == (payment, True)
            with pytest.raises(RefusedError) as refused:
                await creator.create(replace(request, request_hash=uuid4().bytes))
            assert refused.value.code is ErrorCode.IDEMPOTENCY_CONFLICT
    await three.cells_of.away(2)
    with pytest.raises(StorageUnavailableError):  # whether it has the key nobody can say
        await creator.create(world.request())
    await three.cells_of.back(2)
    await world.move_clock(26 * _HOUR_S)
    await three.cells_of.away(2)
    new = (await creator.create(requests[2])).payment
    assert (ids.cell_of_timed(new.id), new.id != made[2].id) == (1, True)


async def test_a_cell_is_not_closed_while_a_merchant_leaves_it_and_its_keys_count_when_it_is(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, creator = three.world, three.world.service.payment_creator
    await three.cells_of.move(1)
    request = world.request(expires_in_s=60)
    made = (await creator.create(request)).payment
    await world.perform(DrainCell(number=1))

    async def killed(*_: object) -> None:
        raise RefusedError(ErrorCode.SERVICE_UNAVAILABLE, "it is killed")

    with monkeypatch.context() as patch:
        patch.setattr("payintent.operations.merchant_moves.end_move", killed)
        with pytest.raises(RefusedError, match="it is killed"):
            await three.cells_of.move(2)
    await three.cells.at(1).fetch("UPDATE payment SET status = 'CANCELLED', cancelled_at = clock()")
    with pytest.raises(RefusedError, match="1 merchants are in cell 1"):
        await world.perform(CloseCell(number=1))
    await three.cells_of.move(2)
    await world.perform(CloseCell(number=1))
    again = await creator.create(request)
    assert (again.payment.id, again.replayed) == (made.id, True)


async def _read(three: Three, cursor: str | None, cells: Cells | None = None) -> tuple[Any, str]:
    """Read the feed to its end, one by one; gives the events' ids, and its place."""
    read = list[UUID]()
    while True:
        after = None if cursor is None else read_feed_cursor(cursor)
        part = await read_feed(
            cells or three.cells, three.world.merchant_id, after, tuple(EventType), 1
        )
        read += [event.id for event in part.events]
        cursor = write_feed_cursor(part.places)
        if not part.has_more:
            return read, cursor


async def test_a_place_in_the_feed_of_before_two_moves_loses_and_doubles_nothing_after_them(
    three: Three,
) -> None:
    await three.travel(1, 2)
    every, _ = await _read(three, None)
    [first] = [row["id"] for row in await three.cells.at(0).fetch("SELECT id FROM event")]
    part = await read_feed(three.cells, three.world.merchant_id, None, tuple(EventType), 1)
    assert [event.id for event in part.events] == [first]
    before = write_feed_cursor({0: part.places[0]})  # as it was given in cell 0 alone
    assert ":" not in before
    rest, cursor = await _read(three, before)
    assert [first, *rest] == every
    for cell in (0, 1):
        await three.cells_of.move(cell)
        await three.pay()
        [event_id], cursor = await _read(three, cursor)
        assert ids.cell_of_timed(event_id) == cell


async def test_a_process_that_knows_of_no_move_yet_keeps_the_feeds_places_in_other_cells(
    three: Three,
) -> None:
    await three.pay()
    slow = Cells(three.cells.control, three.cells.at(1), three.cells.at(2), kept_s=3600)
    assert await slow.numbers_of_merchant(three.world.merchant_id) == (0,)
    await three.travel(1, 2)
    every, cursor = await _read(three, None)
    for cells in (slow, three.cells, slow):
        nothing, cursor = await _read(three, cursor, cells)
        assert nothing == []
    await three.pay()
    [event_id], _ = await _read(three, cursor)
    assert event_id not in every


async def test_while_cell_0_is_away_the_newest_copy_says_where_a_merchant_is(
    three: Three,
) -> None:
    """Cell 1 was away during the last move, and comes back when cell 0 is gone."""
    world = three.world
    await three.travel(1, 2, 1)
    await three.cells_of.move(2)  # cell 1 knows of it
    await three.cells_of.move(0)  # cell 1 does not, as if it had been away
    await three.cells_of.move(2)
    request = world.request()
    made = (await world.service.payment_creator.create(request)).payment
    await three.cells_of.away(0)
    world.service.cells.forget_place(world.merchant_id)
    place = await three.cells.place_of_merchant(world.merchant_id)
    assert (place.cell, sorted(place.others), place.is_open) == (2, [0, 1], True)
    found = await world.service.payment_lookup.get_merchant_payment(world.merchant_id, made.id)
    assert found.payment == made


async def test_a_frozen_cell_keeps_nobody_from_reading_anothers_copy_while_cell_0_is_away(
    three: Three,
) -> None:
    world = three.world
    other = (await world.other_merchant()).merchant.id
    await three.cells_of.move(2, other)
    long_ago = "since = since - interval '3 days', until = until - interval '2 days'"
    await three.cells_of.run(2, f"UPDATE merchant_cell SET {long_ago} WHERE until IS NOT NULL")
    await three.cells_of.away(0)
    await three.cells_of.away(1, frozen=True)
    three.cells.forget_place(other)
    payment = await asyncio.wait_for(world.create(merchant_id=other), PATIENCE_S / 3)
    assert ids.cell_of_timed(payment.id) == 2
    await three.cells_of.back(1)


@pytest.mark.parametrize("had", ["nothing", "a key", "a payment"])
async def test_a_merchant_that_had_nothing_in_cell_0_needs_it_for_nothing(
    three: Three, had: str
) -> None:
    world, creator = three.world, three.world.service.payment_creator
    if had == "a payment":
        await three.pay()
    if had == "a key":
        request = world.request()
        await three.cells.control.fetch(
            "INSERT INTO idempotency (merchant_id, operation, key, request_hash, denial, "
            "created_at) VALUES ($1, 'create', $2, $3, '{}', clock())",
            world.merchant_id,
            request.key,
            request.request_hash,
        )
    await three.cells_of.move(1)
    await three.pay()
    owed, (listed, _) = await three.balance(), await _own_list(three)
    await three.cells_of.away(0)
    if had == "nothing":
        created = await creator.create(world.request())
        assert ids.cell_of_timed(created.payment.id) == 1
        assert await three.balance() == owed
        assert await _own_list(three) == ([created.payment.id, *listed], True)
        return
    with pytest.raises(StorageUnavailableError):
        await creator.create(world.request())
    with pytest.raises(StorageUnavailableError):
        await three.balance()
