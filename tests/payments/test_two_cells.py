"""Two cells on two databases: a payment is where its merchant is, from the create to the refund."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from uuid import UUID

import pytest

from payintent.domain import ids
from payintent.domain.errors import RefusedError, StorageUnavailableError
from payintent.domain.fraud import FraudDeniedError
from payintent.domain.gateway import DisputeReport, DisputeState
from payintent.id_generator import IdGenerator
from payintent.operations.fraud import AddFraudRule
from payintent.payments.receive_callback import CallbackResult
from payintent.storage import sessions
from payintent.storage.database import Executor
from payintent.storage.session_cells import SessionCells, find_session_cell
from tests.payments.refunding import DONE, asked, due, paid
from tests.payments.test_buyer_calls import buyer_call
from tests.support.cell_schema import OF_CELLS
from tests.support.cells import copy_tables
from tests.support.databases import Databases
from tests.support.fakes import captured
from tests.support.two_cells import TwoCells, two_cells
from tests.support.world import World

pytestmark = OF_CELLS
_BURST = 40


@pytest.fixture
async def two(world: World, databases: Databases) -> AsyncIterator[TwoCells]:
    limit = {"buyer_calls_per_s": 2, "buyer_calls_burst": _BURST}
    async with two_cells(world, databases, **limit) as made:
        yield made


async def test_a_payment_is_in_its_merchants_cell_from_the_create_to_the_refund(
    two: TwoCells,
) -> None:
    world = two.world
    payment = await world.create()
    lookup = world.service.payment_lookup
    found = await lookup.get_merchant_payment(world.merchant_id, payment.id)
    assert found.payment == payment
    seal = world.service.encryption.checkout_seal()
    assert seal.cell_of(payment.checkout_id) == 1
    session = (await world.select(payment)).session
    result = await two.tell(session_id=session.id, report=captured(159000))
    assert result == CallbackResult(True, payment.id)
    refund = await asked(world, payment)
    [item] = await due(world)
    await world.service.refund_sender.process(item)
    await two.tell(refund_id=refund.id, refund=DONE)
    assert await world.status(payment) == "REFUNDED"
    await world.service.accounts.log.flush()
    assert ids.cell_of_timed(payment.id) == ids.cell_of_timed(refund.id) == 1
    assert ids.cell_of_opaque(session.id) == 1
    there = await two.count(1)
    assert {"payment", "checkout", "session", "capture", "ledger_entry", "refund"} <= set(there)
    assert {"event", "delivery", "callback", "idempotency", "gateway_call"} <= set(there)
    assert await two.count(0) == {}


async def test_a_key_is_replayed_and_a_denial_is_kept_in_the_merchants_cell(two: TwoCells) -> None:
    world, creator = two.world, two.world.service.payment_creator
    request = world.request()
    first = await creator.create(request)
    again = await creator.create(request)
    assert (again.payment, again.replayed) == (first.payment, True)
    assert await creator.find(request) == again
    rule = AddFraudRule(kind="PAYER", value="buyer-2", code="NO", level="CRITICAL", score=100)
    await world.perform(rule)
    await copy_tables(world.service.cells)
    denied = world.request(payer_uid="buyer-2")
    for replayed in (False, True):
        with pytest.raises(FraudDeniedError) as refused:
            await world.service.fraud_screening.create_payment(denied)
        assert refused.value.replayed is replayed
    [kept] = await world.rows("SELECT id FROM fraud_decision")
    assert ids.cell_of_timed(kept["id"]) == 1
    assert await two.count(0) == {}


async def test_merchants_without_a_cell_of_their_own_stay_in_cell_0(two: TwoCells) -> None:
    other = await two.world.other_merchant()
    payment = await two.world.create(merchant_id=other.merchant.id)
    assert ids.cell_of_timed(payment.id) == 0
    assert set(await two.count(0)) == {"payment", "checkout", "idempotency"}
    assert await two.count(1) == {}
    found = await two.world.service.payment_lookup.find_checkout_payment(payment.checkout_id)
    assert found.payment == payment


async def test_a_checkout_of_before_cells_is_found_whatever_cell_its_id_decodes_to(
    two: TwoCells, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, service = two.world, two.world.service
    other = (await world.other_merchant()).merchant.id
    seal, decoded = service.encryption.checkout_seal(), set[int]()
    while len(decoded) < 2:  # one that leads to cell 1, and one that leads elsewhere
        old = IdGenerator().new_checkout_id()
        if (cell := min(seal.cell_of(old), 2)) in {0, *decoded}:
            continue
        decoded.add(cell)
        monkeypatch.setattr(service.id_generator, "new_checkout_id", lambda old=old: old)
        payment = await world.create(merchant_id=other)
        assert payment.checkout_id == old
        assert (await service.payment_lookup.find_checkout_payment(old)).payment.id == payment.id
        await two.away(1)
        assert (await service.payment_lookup.find_checkout_payment(old)).payment.id == payment.id
        await two.proxies[1].start()
    with pytest.raises(RefusedError, match="no such checkout"):
        await service.payment_lookup.find_checkout_payment(IdGenerator().new_checkout_id())


async def test_payments_go_on_while_control_is_away(two: TwoCells) -> None:
    world = two.world
    await two.away(0)
    payment = await paid(world)
    assert await world.status(payment) == "PAID"
    session = (await world.select(await world.create())).session
    assert (await two.tell(session_id=session.id, report=captured(159000))).fresh
    assert (await asked(world, payment)).payment_id == payment.id


async def test_the_buyers_of_two_cells_call_an_account_no_oftener_than_those_of_one(
    two: TwoCells,
) -> None:
    accounts, settings = two.world.service.accounts, two.world.service.settings
    taken = 0
    for calls in accounts.buyer_calls:
        while await calls.allow(buyer_call(two.world.account_id)):
            taken += 1
    assert settings.buyer_calls_burst == _BURST
    assert _BURST <= taken <= _BURST + _BURST // 2  # some came back meanwhile


async def test_a_cell_that_is_away_stops_no_payment_of_another(two: TwoCells) -> None:
    world, lookup = two.world, two.world.service.payment_lookup
    there = await world.create()
    other = (await world.other_merchant()).merchant.id
    await two.away(1)
    payment = await world.create(merchant_id=other)
    assert (await lookup.get_merchant_payment(other, payment.id)).payment == payment
    assert (await lookup.find_checkout_payment(payment.checkout_id)).payment == payment
    for checkout_id in (there.checkout_id, world.service.encryption.checkout_seal().seal(1, 5)):
        with pytest.raises(StorageUnavailableError):
            await lookup.find_checkout_payment(checkout_id)
    with pytest.raises(StorageUnavailableError):
        await world.create()


async def test_money_that_names_no_session_is_looked_for_in_every_cell(two: TwoCells) -> None:
    world = two.world
    payment = await paid(world)
    report = DisputeReport(
        reference="du-1",
        capture=f"cap-{payment.id}",
        state=DisputeState.OPEN,
        amount_minor=159000,
        currency="THB",
    )
    assert (await two.tell(dispute=report)).payment_id == payment.id
    assert await world.cases(payment) == ["DISPUTE"]
    assert await two.count(0) == {}
    assert (await two.tell(report=captured(700, reference="stranger"))).payment_id is None
    assert {"callback", "capture", "money_case"} <= set(await two.count(0))


async def test_money_for_a_session_that_is_not_there_waits_in_the_cell_that_its_id_names(
    two: TwoCells,
) -> None:
    session_id = IdGenerator(cell=1).new_session_id()
    assert await two.tell(session_id=session_id, report=captured(159000)) == CallbackResult(
        True, None
    )
    assert await two.count(0) == {}
    assert {"callback", "capture", "money_case"} <= set(await two.count(1))


async def test_callbacks_that_come_together_share_the_look_up_of_their_sessions(
    two: TwoCells, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = two.world
    chosen = [(await world.select(await world.create())).session for _ in range(6)]
    asked: list[int] = []
    are_known = sessions.are_known

    async def counting(database: Executor, session_ids: Sequence[UUID]) -> list[bool]:
        asked.append(len(session_ids))
        return await are_known(database, session_ids)

    monkeypatch.setattr(sessions, "are_known", counting)
    found = SessionCells(world.service.cells)
    stranger = IdGenerator(cell=1).new_session_id()
    there = await asyncio.gather(*(found.find(item.id) for item in chosen), found.find(stranger))
    assert {database.id_generator.cell for database in there} == {1}
    assert asked[0] == len(chosen)  # all but the first, which nothing kept waiting
    await found.close()


async def test_a_session_of_before_cells_whose_id_names_one_by_chance_is_found_in_cell_0(
    two: TwoCells, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, service = two.world, two.world.service
    cells, chance = service.cells, IdGenerator(cell=1).new_session_id()
    monkeypatch.setattr(service.id_generator, "new_session_id", lambda: chance)
    other = (await world.other_merchant()).merchant.id
    payment = await world.create(merchant_id=other)
    [method] = await cells.control.fetch(
        "SELECT id FROM payment_method WHERE merchant_id = $1 LIMIT 1", other
    )
    assert (await world.select(payment, method["id"])).session.id == chance
    assert await find_session_cell(cells, chance) is cells.control
    result = await two.tell(session_id=chance, report=captured(159000, reference="by chance"))
    assert result.payment_id == payment.id
    assert await two.count(1) == {}


async def test_a_merchant_in_a_cell_that_this_process_has_not_opened_is_told_to_come_back(
    two: TwoCells,
) -> None:
    control = two.world.service.cells.control
    await control.fetch("INSERT INTO cell (number) VALUES (2)")
    await control.fetch("UPDATE merchant_cell SET cell = 2")
    with pytest.raises(StorageUnavailableError, match="cell 2 was added after this process began"):
        await two.world.create()
