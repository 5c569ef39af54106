"""Unassigned money is refunded once, and automatically if the merchant has enabled that."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from payintent.cases import store as case_store
from payintent.cases.model import AUTO_REFUND_KINDS, CaseKind
from payintent.cases.operations import ListCases, read_case_details
from payintent.core.errors import ConflictError, ErrorCode, RefusedError
from payintent.gateways.port import DisputeState, GatewaySessionState, SessionReport
from payintent.payments import captures_store as capture_store
from payintent.payments import store as payment_store
from payintent.payments.model import Payment
from payintent.refunds import list_store as refund_lists
from payintent.refunds.create import auto_refund_case, refund_case
from payintent.refunds.model import AUTO_REFUND, RefundStatus
from payintent.refunds.resolve_case import ResolveCase
from tests.disputes.test_record import hear as hear_dispute
from tests.disputes.test_record import report as dispute
from tests.payments.test_expire import inquire_all, sweep
from tests.refunds.refund_gateway import RefundGateway
from tests.refunds.refund_setup import (
    DECLINED,
    DONE,
    PENDING,
    Books,
    create_paid_payment,
    process_due_refunds,
    read_books,
    request_refund,
    send_refund_callback,
    set_auto_refund,
)
from tests.support.fakes import FakeGateway, captured, declined
from tests.support.world import World

Strays = Callable[[World], Awaitable[Payment]]


@pytest.fixture
def gateway() -> FakeGateway:
    return RefundGateway()


def make_stray_report(amount_minor: int = 159000) -> SessionReport:
    return captured(amount_minor, reference="stray")


async def create_selected_payment(world: World) -> tuple[Payment, UUID]:
    payment = await world.create()
    return payment, (await world.select(payment)).session.id


async def _orphan(world: World) -> Payment:
    payment, session_id = await create_selected_payment(world)
    await world.select(payment, world.transfer)
    await world.report(payment, session_id, make_stray_report())
    return payment


async def _late(world: World) -> Payment:
    payment, session_id = await create_selected_payment(world)
    await world.report(payment, session_id, declined())
    await world.report(payment, session_id, make_stray_report())
    return payment


async def _expired(world: World) -> Payment:
    payment, session_id = await create_selected_payment(world)
    await world.move_clock(1801)
    await sweep(world)
    await inquire_all(world)
    await world.report(payment, session_id, make_stray_report())
    return payment


async def _double(world: World) -> Payment:
    payment = await create_paid_payment(world)
    assert payment.session_id is not None
    await world.report(payment, payment.session_id, make_stray_report())
    return payment


async def _mismatch(world: World) -> Payment:
    payment, session_id = await create_selected_payment(world)
    await world.report(payment, session_id, make_stray_report(158999))
    return payment


STRAYS: dict[str, tuple[str, Strays]] = {
    "orphan": ("ORPHAN_CAPTURE", _orphan),
    "late": ("LATE_PAYMENT", _late),
    "expired": ("LATE_PAYMENT", _expired),
    "double": ("DOUBLE_PAYMENT", _double),
    "mismatch": ("AMOUNT_MISMATCH", _mismatch),
}
BY_NAME = pytest.mark.parametrize("name", STRAYS)


async def read_case(world: World) -> tuple[str, str | None]:
    """Return the state of the only case, and the actor that closed it."""
    [row] = await world.rows("SELECT status, closed_by FROM money_case")
    return row["status"], row["closed_by"]


@BY_NAME
async def test_unassigned_money_is_refunded_automatically_if_the_merchant_has_enabled_that(
    world: World, name: str
) -> None:
    kind, create_stray = STRAYS[name]
    await set_auto_refund(world, on=True)
    payment = await create_stray(world)
    before, events = (await world.read(payment)).payment, await world.events(payment)
    assert await world.cases(payment) == [kind]
    assert await read_case(world) == ("OPEN", None)  # until the refund succeeds
    assert await process_due_refunds(world) == 1
    [request] = world.gateway.refunds
    assert request.capture.reference == "stray"
    assert request.amount_minor == request.capture.amount_minor
    assert await read_case(world) == ("REFUNDED", AUTO_REFUND)
    assert (await world.read(payment)).payment == before
    assert await world.events(payment) == events


@BY_NAME
async def test_unassigned_money_stays_in_an_open_case_if_automatic_refunds_are_off(
    world: World, name: str
) -> None:
    kind, create_stray = STRAYS[name]
    await set_auto_refund(world, on=False)
    payment = await create_stray(world)
    assert await process_due_refunds(world) == 0
    assert await world.cases(payment) == [kind]
    assert await read_case(world) == ("OPEN", None)
    assert await world.rows("SELECT 1 FROM refund") == []


@BY_NAME
async def test_a_repeated_report_does_not_cause_a_second_refund(world: World, name: str) -> None:
    await set_auto_refund(world, on=True)
    payment = await STRAYS[name][1](world)
    [row] = await world.rows("SELECT session_id FROM capture WHERE NOT credited")
    for _ in range(2):
        await world.report(payment, row["session_id"], make_stray_report())
        await process_due_refunds(world)
    assert len(world.gateway.refunds) == 1


@pytest.mark.parametrize("kind", CaseKind)
async def test_only_cases_of_unassigned_money_are_refunded_automatically(
    world: World, kind: CaseKind
) -> None:
    await set_auto_refund(world, on=False)
    payment = await _double(world)
    await set_auto_refund(world, on=True)
    [row] = await world.rows("SELECT id, capture_id FROM money_case")
    async with world.database.transaction() as tx:
        await payment_store.lock(tx, [payment.id])
        await auto_refund_case(tx, kind, row["id"], row["capture_id"], payment.merchant_id)
    assert len(await world.rows("SELECT 1 FROM refund")) == (kind in AUTO_REFUND_KINDS)


async def test_a_week_of_gateway_timeouts_does_not_cause_a_refund(world: World) -> None:
    await set_auto_refund(world, on=True)
    payment = await world.create(expires_in_s=86_400)
    await world.select(payment)
    await world.move_clock(8 * 24 * 3600)
    await inquire_all(world)
    assert await world.cases(payment) == ["UNKNOWN_REFERENCE"]
    assert await world.rows("SELECT 1 FROM refund") == []


async def test_a_capture_of_zero_opens_a_case_without_a_refund(world: World) -> None:
    await set_auto_refund(world, on=True)
    payment, session_id = await create_selected_payment(world)
    await world.report(payment, session_id, make_stray_report(0))
    assert await world.status(payment) == "FAILED"
    assert await world.cases(payment) == ["AMOUNT_MISMATCH"]
    assert await world.rows("SELECT 1 FROM refund") == []


async def test_a_refund_of_a_case_does_not_reduce_the_refundable_amount_of_its_payment(
    world: World,
) -> None:
    await set_auto_refund(world, on=True)
    payment = await _double(world)
    assert await read_books(world, payment) == Books("PAID", "0", "0", 0, 0)
    await request_refund(world, payment)
    assert await process_due_refunds(world) == 2
    assert await read_books(world, payment) == Books("REFUNDED", "1590", "0", 159000, 0)
    refunded_amounts = {
        refund.capture.reference: refund.amount_minor for refund in world.gateway.refunds
    }
    assert refunded_amounts == {"stray": 159000, f"cap-{payment.id}": 159000}


async def test_a_refund_of_a_case_is_not_listed_with_the_refunds_of_its_payment(
    world: World,
) -> None:
    await set_auto_refund(world, on=True)
    payment = await _double(world)
    refund = await request_refund(world, payment, "1")
    [listed_refund] = await refund_lists.list_for_payment(world.database, payment.id, None, 10)
    assert listed_refund.id == refund.id


async def test_a_case_with_a_declined_refund_stays_open_and_can_be_refunded_again(
    world: World,
) -> None:
    await set_auto_refund(world, on=True)
    await _late(world)
    world.gateway.answer_refund = DECLINED
    await process_due_refunds(world)
    assert await read_case(world) == ("OPEN", None)
    [row] = await world.rows("SELECT id, capture_id FROM money_case")
    world.gateway.answer_refund = DONE
    async with world.database.transaction() as tx:
        await refund_case(tx, row["id"], row["capture_id"], "ann")
    await process_due_refunds(world)
    assert await read_case(world) == ("REFUNDED", "ann")


async def test_a_second_refund_of_a_case_is_refused(world: World) -> None:
    await set_auto_refund(world, on=True)
    payment = await _late(world)
    [row] = await world.rows("SELECT id, capture_id FROM money_case")
    for _ in range(2):
        with pytest.raises(RefusedError) as refused:
            await _refund_case(world, payment, row["id"], row["capture_id"])
        assert refused.value.code is ErrorCode.CONFLICT
        await process_due_refunds(world)
    assert len(world.gateway.refunds) == 1


async def _refund_case(world: World, payment: Payment, case_id: UUID, capture_id: UUID) -> None:
    async with world.database.transaction() as tx:
        await payment_store.lock(tx, [payment.id])
        await refund_case(tx, case_id, capture_id, "ann")


async def test_credited_money_cannot_be_refunded_through_a_case(world: World) -> None:
    payment = await create_paid_payment(world)
    refund = await request_refund(world, payment, "590")
    await process_due_refunds(world)
    await send_refund_callback(world, refund.id, DECLINED)
    [row] = await world.rows("SELECT id, capture_id, kind FROM money_case")
    assert row["kind"] == "REFUND_REVERSED"
    with pytest.raises(RefusedError, match="refund the payment") as refused:
        await _refund_case(world, payment, row["id"], row["capture_id"])
    assert refused.value.code is ErrorCode.CONFLICT
    assert await read_books(world, payment) == Books("PARTIALLY_REFUNDED", "590", "0", 59000, 0)


async def test_a_reversed_refund_of_a_case_opens_another_case(world: World) -> None:
    await set_auto_refund(world, on=True)
    payment = await _late(world)
    await process_due_refunds(world)
    [refund] = await world.rows("SELECT id FROM refund")
    await send_refund_callback(world, refund["id"], DECLINED)
    assert await world.cases(payment) == ["LATE_PAYMENT", "REFUND_REVERSED"]
    assert len(world.gateway.refunds) == 1


async def test_a_case_closes_when_its_pending_refund_succeeds(world: World) -> None:
    await set_auto_refund(world, on=True)
    payment = await _orphan(world)
    world.gateway.answer_refund = PENDING
    await process_due_refunds(world)
    assert await read_case(world) == ("OPEN", None)
    [refund] = await world.rows("SELECT id FROM refund")
    assert (await send_refund_callback(world, refund["id"])).payment_id == payment.id
    assert await read_case(world) == ("REFUNDED", AUTO_REFUND)


async def test_a_case_that_an_operator_closed_is_not_changed_by_its_refund(world: World) -> None:
    await set_auto_refund(world, on=True)
    await _orphan(world)
    [row] = await world.rows("SELECT id FROM money_case")
    async with world.database.transaction() as tx:
        await case_store.close(tx, row["id"], "DISMISSED", "ann", "it was a test")
    await process_due_refunds(world)
    assert await read_case(world) == ("DISMISSED", "ann")
    [refund] = await world.rows("SELECT status FROM refund")
    assert refund["status"] == RefundStatus.SUCCEEDED


async def test_a_report_without_a_final_session_state_does_not_cause_a_refund(world: World) -> None:
    await set_auto_refund(world, on=True)
    payment, session_id = await create_selected_payment(world)
    for state in (
        GatewaySessionState.OPEN,
        GatewaySessionState.ATTEMPTED,
        GatewaySessionState.CLOSED,
    ):
        await world.report(payment, session_id, SessionReport(state=state))
    assert await world.rows("SELECT 1 FROM capture") == []
    assert await process_due_refunds(world) == 0


async def test_the_capture_of_a_case_is_locked_before_its_refund_is_written(world: World) -> None:
    """The remainder is read and the refund is written under the same lock."""
    await set_auto_refund(world, on=False)
    await _late(world)
    [row] = await world.rows("SELECT id, capture_id FROM money_case")
    async with world.database.transaction() as tx:
        await refund_case(tx, row["id"], row["capture_id"], "ann")
        assert (await capture_store.lock(tx, row["capture_id"])).undisputed_minor == 0
        with pytest.raises(RefusedError):
            await refund_case(tx, uuid4(), row["capture_id"], "bob")


async def test_no_money_of_a_case_is_left_over_if_a_dispute_of_a_part_is_won(world: World) -> None:
    payment = await _late(world)
    partial_dispute = dispute(payment, capture="stray", amount_minor=59000)
    await hear_dispute(world, partial_dispute)
    [case] = await world.perform(ListCases(kind=CaseKind.LATE_PAYMENT))
    refund = ResolveCase(case_id=case.id, resolution="refund", note="not ours")
    with pytest.raises(ConflictError, match="dispute"):
        await world.perform(refund)
    await hear_dispute(world, replace(partial_dispute, state=DisputeState.WON))
    await world.perform(refund)
    assert await process_due_refunds(world) == 1
    [request] = world.gateway.refunds
    assert request.amount_minor == 159000
    assert (await read_case_details(world.database, case.id)).status == "REFUNDED"


async def test_the_rest_of_a_case_can_be_refunded_if_a_dispute_of_a_part_is_lost(
    world: World,
) -> None:
    payment = await _late(world)
    lost_dispute = dispute(payment, capture="stray", amount_minor=59000, state=DisputeState.LOST)
    await hear_dispute(world, lost_dispute)
    [case] = await world.perform(ListCases(kind=CaseKind.LATE_PAYMENT))
    await world.perform(ResolveCase(case_id=case.id, resolution="refund", note="not ours"))
    await process_due_refunds(world)
    assert [request.amount_minor for request in world.gateway.refunds] == [100000]
