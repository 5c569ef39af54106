"""Refunds made in the gateway's dashboard are counted once, like ours, and open cases."""

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from payintent.accounting import statements_store as statement_store
from payintent.accounting.ledger_operations import CheckLedger
from payintent.callbacks.receive import CallbackResult
from payintent.cases.list_store import CaseDetails
from payintent.cases.operations import ListCases
from payintent.core import ids
from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateways.port import (
    Capture,
    FraudWarning,
    GatewayRefundState,
    OutsideRefund,
    RefundReport,
    VerifiedCallback,
)
from payintent.payments.model import Payment
from payintent.refunds import list_store as refund_lists
from payintent.refunds.resolve_case import ResolveCase
from tests.disputes.test_record import hear as hear_dispute
from tests.disputes.test_record import report as dispute
from tests.refunds import refund_setup
from tests.refunds.refund_setup import (
    Books,
    create_paid_payment,
    process_due_refunds,
    read_books,
    request_refund,
)
from tests.support.fakes import captured
from tests.support.world import World


def make_report(payment: Payment, amount_minor: int = 50000, **changes: Any) -> OutsideRefund:
    """Build a report that part of a 1590.00 THB payment was refunded in the dashboard."""
    full_report = OutsideRefund(
        reference=f"re-{payment.id}",
        capture=f"cap-{payment.id}",
        state=GatewayRefundState.DONE,
        amount_minor=amount_minor,
        currency="THB",
    )
    return replace(full_report, **changes)


async def send_callback(
    world: World, subject: OutsideRefund | FraudWarning, **more: Any
) -> CallbackResult:
    if isinstance(subject, OutsideRefund):
        more["outside_refund"] = subject
    else:
        more["fraud_warning"] = subject
    callback = VerifiedCallback(id=more.pop("name", uuid4().hex), **more)
    return await world.service.callback_receiver.receive(world.account_id, callback, b"raw body")


async def list_cases(world: World, status: Any = "ALL") -> list[CaseDetails]:
    return await world.perform(ListCases(status=status))


async def is_ledger_consistent(world: World) -> bool:
    return await world.perform(CheckLedger()) == []


async def test_a_dashboard_refund_is_counted_and_opens_a_case(world: World) -> None:
    payment = await create_paid_payment(world)
    result = await send_callback(world, make_report(payment))
    assert result.payment_id == payment.id
    assert await read_books(world, payment) == Books("PARTIALLY_REFUNDED", "500", "0", 50000, 0)
    [case] = await list_cases(world)
    assert (case.kind, case.status) == ("OUTSIDE_REFUND", "OPEN")
    assert case.payment_id == ids.format_id(ids.PAYMENT, payment.id)
    assert case.note == f"re-{payment.id}: 500.00 THB done; counted"
    assert await world.events(payment) == ["payment.completed"]


async def test_a_dashboard_refund_of_the_remainder_refunds_the_payment(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    await request_refund(world, payment, "90.00")
    await process_due_refunds(world)
    await send_callback(world, make_report(payment, 150000))
    assert await read_books(world, payment) == Books("REFUNDED", "1590", "0", 159000, 0)
    with pytest.raises(RefusedError) as error:
        await request_refund(world, payment, "0.01")
    assert error.value.code is ErrorCode.INVALID_PAYMENT_STATE


async def test_a_dashboard_refund_is_counted_once_even_if_it_is_reported_repeatedly(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    await send_callback(world, make_report(payment), name="evt_1")
    await send_callback(world, make_report(payment), name="evt_1")
    for state in (GatewayRefundState.PENDING, GatewayRefundState.DONE):
        await send_callback(world, make_report(payment, state=state))
    assert await read_books(world, payment) == Books("PARTIALLY_REFUNDED", "500", "0", 50000, 0)
    assert len(await list_cases(world)) == 1


async def test_a_refund_that_we_requested_is_not_counted_as_a_dashboard_refund(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    refund = await request_refund(world, payment, "500.00")
    # The callback arrives before the response. A later callback has only the gateway's id.
    refund_report = RefundReport(state=GatewayRefundState.DONE, reference=f"re-{payment.id}")
    await send_callback(world, make_report(payment), refund_id=refund.id, refund=refund_report)
    await send_callback(world, make_report(payment))
    await process_due_refunds(world)
    assert await read_books(world, payment) == Books("PARTIALLY_REFUNDED", "500", "0", 50000, 0)
    assert await list_cases(world) == []


async def test_a_refund_with_an_id_of_another_installation_is_counted(world: World) -> None:
    payment = await create_paid_payment(world)
    refund_report = RefundReport(state=GatewayRefundState.DONE, reference=f"re-{payment.id}")
    await send_callback(world, make_report(payment), refund_id=uuid4(), refund=refund_report)
    assert await read_books(world, payment) == Books("PARTIALLY_REFUNDED", "500", "0", 50000, 0)


async def test_a_pending_dashboard_refund_is_reserved_until_it_ends(world: World) -> None:
    payment = await create_paid_payment(world)
    await send_callback(world, make_report(payment, state=GatewayRefundState.PENDING))
    assert await read_books(world, payment) == Books("PAID", "0", "500", 0, 50000)
    await send_callback(world, make_report(payment, state=GatewayRefundState.DECLINED))
    assert await read_books(world, payment) == Books("PAID", "0", "0", 0, 0)


async def test_a_failure_that_arrives_before_the_refund_itself_is_remembered(world: World) -> None:
    payment = await create_paid_payment(world)
    await send_callback(world, make_report(payment, state=GatewayRefundState.DECLINED))
    assert await list_cases(world) == []
    await send_callback(world, make_report(payment, state=GatewayRefundState.PENDING))
    assert await read_books(world, payment) == Books("PAID", "0", "0", 0, 0)


async def test_the_gateway_is_queried_about_a_pending_dashboard_refund(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    await send_callback(world, make_report(payment, state=GatewayRefundState.PENDING))
    world.gateway.answer_inquire_refund = refund_setup.ABSENT
    for hours in (1, 2, 3):
        await process_due_refunds(world)
        await world.move_clock(hours * 3600)
    assert [request.reference for request in world.gateway.refunds_inquired] == [
        f"re-{payment.id}"
    ] * 3
    assert world.gateway.refunds == []
    assert await read_books(world, payment) == Books("PAID", "0", "500", 0, 50000)
    world.gateway.answer_inquire_refund = refund_setup.DONE
    await process_due_refunds(world)
    assert await read_books(world, payment) == Books("PARTIALLY_REFUNDED", "500", "0", 50000, 0)


async def test_a_dashboard_refund_of_reserved_money_is_deferred_until_our_refunds_end(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    refund = await request_refund(world, payment)
    for _ in range(2):
        with pytest.raises(RefusedError) as error:
            await send_callback(world, make_report(payment, 159000))
        assert error.value.code is ErrorCode.CONFLICT
    [case] = await list_cases(world)
    assert (case.kind, case.status) == ("OUTSIDE_REFUND", "OPEN")
    await refund_setup.send_refund_callback(world, refund.id, refund_setup.DECLINED)
    await send_callback(world, make_report(payment, 159000))
    assert await read_books(world, payment) == Books("REFUNDED", "1590", "0", 159000, 0)
    [case] = await list_cases(world)
    assert case.note.endswith(
        "this money is reserved by refunds requested through this service; counted"
    )


@pytest.mark.parametrize("changes", [{"currency": "USD"}, {"amount_minor": 159001}])
async def test_a_dashboard_refund_that_does_not_fit_its_capture_only_opens_a_case(
    world: World, changes: dict[str, Any]
) -> None:
    payment = await create_paid_payment(world)
    await send_callback(world, make_report(payment, **changes))
    assert await read_books(world, payment) == Books("PAID", "0", "0", 0, 0)
    [case] = await list_cases(world)
    assert case.kind == "OUTSIDE_REFUND"
    assert "not counted" in case.note


async def test_a_dashboard_refund_that_arrives_before_its_capture_is_refused_so_that_it_is_retried(
    world: World,
) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    early_report = make_report(payment, capture=session.gateway_ref.reference)
    with pytest.raises(RefusedError) as error:
        await send_callback(world, early_report)
    assert error.value.code is ErrorCode.CONFLICT
    assert await list_cases(world) == []


async def test_a_dashboard_refund_of_an_unassigned_capture_closes_its_case(
    world: World,
) -> None:
    capture = Capture(reference="cap-unknown", amount_minor=159000, currency="THB")
    capture_callback = VerifiedCallback(
        id="evt_money", session_id=uuid4(), report=captured_report(capture)
    )
    await world.service.callback_receiver.receive(world.account_id, capture_callback, b"raw body")
    refund = OutsideRefund(
        reference="re_1",
        capture="cap-unknown",
        state=GatewayRefundState.DONE,
        amount_minor=159000,
        currency="THB",
    )
    await send_callback(world, refund)
    statuses = {case.kind: case.status for case in await list_cases(world)}
    assert statuses == {"UNKNOWN_REFERENCE": "REFUNDED", "OUTSIDE_REFUND": "REFUNDED"}
    assert await is_ledger_consistent(world)


def captured_report(capture: Capture) -> Any:
    return captured(capture.amount_minor, capture.currency, reference=capture.reference)


async def test_a_dashboard_refund_of_an_unknown_capture_is_stored_without_effect(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    result = await send_callback(world, make_report(payment, capture="another shop's"))
    assert (result.is_new, result.payment_id) == (True, None)
    assert await list_cases(world) == []


async def test_the_ledger_stays_consistent_with_several_dashboard_refunds(world: World) -> None:
    payment = await create_paid_payment(world)
    for number, amount_minor in enumerate((1, 33333, 70000)):
        await send_callback(world, make_report(payment, amount_minor, reference=f"re_{number}"))
    stored_payment = (await world.read(payment)).payment
    assert str(stored_payment.refunded_amount) == "1033.340000000000000000"
    refunds = await refund_lists.list_for_payment(world.database, payment.id, None, 10)
    assert [refund.amount_text for refund in refunds] == ["700.00", "333.33", "0.01"]
    assert await is_ledger_consistent(world)


async def test_a_dashboard_refund_still_counts_after_an_operator_accepts_its_case(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    await send_callback(world, make_report(payment))
    [case] = await list_cases(world)
    with pytest.raises(RefusedError):
        await world.perform(ResolveCase(case_id=case.id, resolution="refund", note="again"))
    await world.perform(ResolveCase(case_id=case.id, resolution="accept", note="by Ann"))
    await send_callback(world, make_report(payment))
    assert await list_cases(world, "OPEN") == []
    assert (await read_books(world, payment)).refunded == "500"


async def test_a_fraud_warning_opens_a_single_case_and_has_no_other_effect(world: World) -> None:
    payment = await create_paid_payment(world)
    warning = FraudWarning(reference="issfr_1", capture=f"cap-{payment.id}", reason="stolen_card")
    first = await send_callback(world, warning)
    await send_callback(world, warning)
    assert first.payment_id == payment.id
    [case] = await list_cases(world)
    assert (case.kind, case.note) == ("FRAUD_WARNING", "the issuer suspects fraud: stolen_card")
    assert await read_books(world, payment) == Books("PAID", "0", "0", 0, 0)


@pytest.mark.parametrize("resolution", ["accept", "dismiss"])
async def test_closing_a_case_that_only_reports_a_fact_does_not_move_the_payments_money(
    world: World, resolution: Any
) -> None:
    payment = await create_paid_payment(world)
    warning = FraudWarning(reference="issfr_1", capture=f"cap-{payment.id}")
    await send_callback(world, warning)
    await send_callback(world, make_report(payment, 59000))
    for case in await list_cases(world, "OPEN"):
        await world.perform(ResolveCase(case_id=case.id, resolution=resolution, note="by Ann"))
    [balance] = await statement_store.list_balances(world.database, world.merchant_id)
    assert balance.amount_minor == 95389
    assert await is_ledger_consistent(world)


async def test_a_dashboard_refund_of_disputed_money_is_not_counted_and_opens_a_case(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    await hear_dispute(world, dispute(payment, amount_minor=150000))
    await send_callback(world, make_report(payment, 9000, reference="re_1"))
    await send_callback(world, make_report(payment, 1, reference="re_2"))
    await send_callback(
        world, make_report(payment, 1, reference="re_3", state=GatewayRefundState.DECLINED)
    )
    assert await read_books(world, payment) == Books("PARTIALLY_REFUNDED", "90", "0", 9000, 0)
    cases = [case for case in await list_cases(world) if case.kind == "OUTSIDE_REFUND"]
    assert [case.note for case in cases] == [
        "re_2: 0.01 THB done; not counted: this money is disputed",
        "re_1: 90.00 THB done; counted",
    ]
    assert await is_ledger_consistent(world)
