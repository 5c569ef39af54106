"""Disputes: a case is tracked to its end, and the disputed money cannot be refunded."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from asyncpg import CheckViolationError
from structlog.testing import capture_logs

from payintent.accounting.ledger_operations import CheckLedger
from payintent.callbacks.receive import CallbackResult
from payintent.cases.list_store import CaseDetails
from payintent.cases.operations import ListCases
from payintent.core import ids
from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateways.port import (
    DisputedFunds,
    DisputeReport,
    DisputeState,
    OutcomeUnknown,
    VerifiedCallback,
)
from payintent.overview.store import measure_open_cases
from payintent.payments.model import Payment
from payintent.refunds.operations import CheckQueuedRefunds
from payintent.refunds.resolve_case import ResolveCase
from tests.payments.test_expire import inquire_all
from tests.refunds.refund_setup import (
    ABSENT,
    DONE,
    PENDING,
    Books,
    create_paid_payment,
    process_due_refunds,
    read_books,
    read_refund,
    request_refund,
)
from tests.support.fakes import captured, declined
from tests.support.world import World

DUE = datetime(2026, 12, 1, 12, tzinfo=UTC)


def report(payment: Payment, **changes: Any) -> DisputeReport:
    """Dispute the full amount of a payment of 1590.00 THB."""
    dispute_report = DisputeReport(
        reference=f"du-{payment.id}",
        capture=f"cap-{payment.id}",
        state=DisputeState.OPEN,
        funds=DisputedFunds.WITHDRAWN,
        amount_minor=159000,
        currency="THB",
        reason="fraudulent",
        respond_by=DUE,
    )
    return replace(dispute_report, **changes)


async def hear(world: World, dispute: DisputeReport, name: str | None = None) -> CallbackResult:
    service = world.service
    callback = VerifiedCallback(id=name or uuid4().hex, dispute=dispute)
    return await service.callback_receiver.receive(world.account_id, callback, b"raw body")


async def the_case(world: World) -> CaseDetails:
    [case] = await world.perform(ListCases())
    return case


async def test_the_age_of_the_oldest_case_does_not_include_disputes_that_the_bank_reviews(
    world: World,
) -> None:
    async def get_age() -> float:
        _, age_s = (await measure_open_cases(world.database))["DISPUTE", "fake"]
        return age_s

    payment = await create_paid_payment(world)
    await hear(world, report(payment))
    await world.move_clock(3600)
    assert await get_age() == pytest.approx(3600, abs=30)
    await hear(world, report(payment, state=DisputeState.UNDER_REVIEW))
    assert await get_age() == 0


async def test_a_dispute_opens_a_case_with_amount_reason_deadline_and_reference(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    receipt = await hear(world, report(payment, amount_minor=50000))
    assert receipt.payment_id == payment.id
    case = await the_case(world)
    assert (case.kind, case.payment_id) == ("DISPUTE", ids.format_id(ids.PAYMENT, payment.id))
    assert (case.amount_minor, case.currency) == ("50000", "THB")
    assert case.dispute is not None
    fields = (case.dispute.reference, case.dispute.reason, case.dispute.respond_by)
    assert fields == (f"du-{payment.id}", "fraudulent", DUE)
    assert (case.dispute.state, case.dispute.funds) == ("open", "withdrawn")
    assert await world.status(payment) == "PAID"
    assert await world.events(payment) == ["payment.completed"]


@pytest.mark.parametrize("reference", ["inv.", "inv.1", "inv.12"])
async def test_a_dispute_that_is_reported_with_its_capture_needs_no_full_reference(
    world: World, reference: str
) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(159000, reference="inv.1"))
    callback = VerifiedCallback(
        id="chargeback",
        session_id=session.id,
        report=captured(159000, reference=reference),
        dispute=report(payment, reference="inv", capture=reference),
    )
    receiver = world.service.callback_receiver
    result = await receiver.receive(world.account_id, callback, b"raw body")
    assert (result.is_new, result.payment_id) == (True, payment.id)
    kinds = {case.kind for case in await world.perform(ListCases())}
    [capture] = await world.rows("SELECT disputed_minor FROM capture WHERE reference = 'inv.1'")
    if reference == "inv.12":  # another capture
        assert (kinds, capture["disputed_minor"]) == ({"DISPUTE", "DOUBLE_PAYMENT"}, 0)
    else:
        assert (kinds, capture["disputed_minor"]) == ({"DISPUTE"}, 159000)


async def test_all_reports_of_a_dispute_update_the_same_case(world: World) -> None:
    payment = await create_paid_payment(world)
    for state, funds in (
        (DisputeState.OPEN, DisputedFunds.UNTOUCHED),
        (DisputeState.OPEN, DisputedFunds.WITHDRAWN),
        (DisputeState.UNDER_REVIEW, DisputedFunds.UNTOUCHED),
        (DisputeState.WON, DisputedFunds.UNTOUCHED),
        (DisputeState.WON, DisputedFunds.REINSTATED),
        (DisputeState.OPEN, DisputedFunds.WITHDRAWN),  # late
    ):
        await hear(world, report(payment, state=state, funds=funds))
    case = await the_case(world)
    assert case.dispute is not None
    assert (case.status, case.dispute.state, case.dispute.funds) == ("OPEN", "won", "reinstated")
    assert case.note == (
        "dispute open, money untouched; dispute open, money withdrawn; "
        "dispute under_review, money withdrawn; dispute won, money withdrawn; "
        "dispute won, money reinstated"
    )


async def test_a_repeated_callback_is_applied_once(world: World) -> None:
    payment = await create_paid_payment(world)
    first = await hear(world, report(payment), name="evt_1")
    again = await hear(world, report(payment, state=DisputeState.LOST), name="evt_1")
    assert (first.is_new, again.is_new) == (True, False)
    assert (await the_case(world)).note == "dispute open, money withdrawn"


async def test_disputed_money_cannot_be_refunded(world: World) -> None:
    payment = await create_paid_payment(world)
    await hear(world, report(payment, amount_minor=100000))
    with pytest.raises(RefusedError, match=r"refundable remainder of 590\.00") as refused:
        await request_refund(world, payment, "590.01")
    assert refused.value.code is ErrorCode.REFUND_EXCEEDS_REMAINING
    refund = await request_refund(world, payment)  # the whole remaining amount
    assert (refund.amount_text, refund.amount_minor) == ("590.00", 59000)
    with pytest.raises(RefusedError) as refused:
        await request_refund(world, payment, "0.01")
    assert refused.value.code is ErrorCode.REFUND_EXCEEDS_REMAINING


@pytest.mark.parametrize(
    ("state", "refundable"),
    [
        (DisputeState.INQUIRY, True),
        (DisputeState.UNDER_REVIEW, False),
        (DisputeState.LOST, False),
        (DisputeState.WON, True),
        (DisputeState.CLOSED, True),
    ],
)
async def test_only_some_dispute_outcomes_make_the_amount_refundable(
    world: World, state: DisputeState, refundable: bool
) -> None:
    payment = await create_paid_payment(world)
    await hear(world, report(payment, state=DisputeState.INQUIRY))
    await hear(world, report(payment, state=state))
    if refundable:
        assert (await request_refund(world, payment)).amount_text == "1590.00"
        return
    with pytest.raises(RefusedError) as refused:
        await request_refund(world, payment)
    assert refused.value.code is ErrorCode.REFUND_EXCEEDS_REMAINING


async def test_refunded_money_can_still_be_disputed(world: World) -> None:
    payment = await create_paid_payment(world)
    await request_refund(world, payment, "1000.00")
    await process_due_refunds(world)
    await hear(world, report(payment))
    stored_payment = (await world.read(payment)).payment
    assert (stored_payment.status, str(stored_payment.refunded_amount)) == (
        "PARTIALLY_REFUNDED",
        "1000.000000000000000000",
    )
    with pytest.raises(RefusedError):
        await request_refund(world, payment, "0.01")


async def test_the_database_does_not_reserve_disputed_money(world: World) -> None:
    payment = await create_paid_payment(world)
    await hear(world, report(payment, amount_minor=159000 - 1))
    reserve = "UPDATE capture SET reserved_minor = reserved_minor + $1 RETURNING id"
    await world.rows(reserve, 1)
    with pytest.raises(CheckViolationError, match="is disputed"):
        await world.rows(reserve, 1)
    await world.rows(reserve, -1)


async def test_a_dispute_in_another_currency_holds_the_whole_capture(world: World) -> None:
    payment = await create_paid_payment(world)
    await hear(world, report(payment, amount_minor=1, currency="USD"))
    with pytest.raises(RefusedError):
        await request_refund(world, payment, "0.01")


async def test_two_disputes_of_a_payment_open_two_cases_and_add_up(world: World) -> None:
    payment = await create_paid_payment(world)
    for name, amount in (("du-a", 100000), ("du-b", 50000)):
        await hear(world, report(payment, reference=name, amount_minor=amount))
    assert len(await world.perform(ListCases())) == 2
    with pytest.raises(RefusedError, match=r"refundable remainder of 90\.00"):
        await request_refund(world, payment, "100.00")


async def test_a_dispute_of_an_unknown_capture_belongs_to_no_payment(world: World) -> None:
    payment = await create_paid_payment(world)
    receipt = await hear(world, report(payment, capture="pi_of_another_shop"))
    assert (receipt.is_new, receipt.payment_id) == (True, None)
    assert await world.perform(ListCases()) == []


async def test_a_dispute_reported_before_its_capture_is_retried_and_speeds_up_the_inquiry(
    world: World,
) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    dispute = report(payment, capture=session.reference)
    with capture_logs() as lines, pytest.raises(RefusedError) as refused:
        await hear(world, dispute, "evt_1")
    assert refused.value.code is ErrorCode.CONFLICT
    assert [line["event"] for line in lines] == ["report_early"]
    world.gateway.answer_inquire = captured(159000, reference=session.reference or "")
    assert await inquire_all(world) == 1
    assert await world.status(payment) == "PAID"
    receipt = await hear(world, dispute, "evt_1")
    assert (receipt.is_new, receipt.payment_id) == (True, payment.id)
    assert (await the_case(world)).kind == "DISPUTE"
    with pytest.raises(RefusedError, match="refundable remainder"):
        await request_refund(world, payment)


async def test_a_dispute_of_a_session_that_ended_without_a_capture_is_not_retried(
    world: World,
) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, declined())
    receipt = await hear(world, report(payment, capture=session.reference))
    assert (receipt.is_new, receipt.payment_id) == (True, None)


async def test_a_dispute_case_cannot_be_refunded_and_is_closed_manually(world: World) -> None:
    payment = await create_paid_payment(world)
    await hear(world, report(payment))
    case = await the_case(world)
    with pytest.raises(RefusedError, match="does not hold funds"):
        await world.perform(ResolveCase(case_id=case.id, resolution="refund", note="?"))
    closed = await world.perform(ResolveCase(case_id=case.id, resolution="accept", note="lost"))
    assert closed.status == "ACCEPTED"
    await hear(world, report(payment, state=DisputeState.LOST))  # reports still update it
    [case] = await world.perform(ListCases(status="ALL"))
    assert case.dispute.state == "lost"
    assert case.status == "ACCEPTED"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (DisputeState.INQUIRY, DisputeState.OPEN),
        (DisputeState.WON, DisputeState.LOST),
        (DisputeState.LOST, DisputeState.WON),
    ],
)
async def test_a_closed_case_is_reopened_if_its_dispute_needs_attention_again(
    world: World, before: DisputeState, after: DisputeState
) -> None:
    payment = await create_paid_payment(world)
    await hear(world, report(payment, state=before))
    case = await the_case(world)
    await world.perform(ResolveCase(case_id=case.id, resolution="dismiss", note="over"))
    await hear(world, report(payment, state=before, reason="other"))  # nothing to do
    assert await world.perform(ListCases()) == []
    await hear(world, report(payment, state=after))
    again = await the_case(world)
    assert (again.id, again.status, again.closed_by) == (case.id, "OPEN", None)
    assert again.note.endswith(f"over; dispute {after}, money withdrawn")


async def test_an_appeal_reopens_the_case_of_a_lost_dispute_with_the_new_deadline(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    await hear(world, report(payment, state=DisputeState.LOST))
    case = await the_case(world)
    await world.perform(ResolveCase(case_id=case.id, resolution="accept", note="lost"))
    due = datetime(2027, 1, 15, 12, tzinfo=UTC)
    await hear(world, report(payment, is_appeal=True, respond_by=due))
    again = await the_case(world)
    assert (again.id, again.status) == (case.id, "OPEN")
    assert again.dispute is not None
    assert (again.dispute.state, again.dispute.respond_by) == ("open", due)
    with pytest.raises(RefusedError, match="refundable remainder"):
        await request_refund(world, payment)
    assert await world.perform(CheckLedger()) == []
    await hear(world, report(payment, state=DisputeState.WON, funds=DisputedFunds.REINSTATED))
    assert (await the_case(world)).dispute.state == "won"  # type: ignore[union-attr]
    assert await world.perform(CheckLedger()) == []
    await request_refund(world, payment)


async def test_an_unsent_refund_fails_if_a_dispute_holds_its_money(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    refund = await request_refund(world, payment, "1000")
    await hear(world, report(payment))
    await process_due_refunds(world)
    assert world.gateway.refunds == []
    ended = await read_refund(world, refund)
    assert (ended.status, ended.failure_reason, ended.step) == ("FAILED", "DECLINED", "ended")
    assert await read_books(world, payment) == Books("PAID", "0", "0", 0, 0)


@pytest.mark.parametrize("state", [DisputeState.INQUIRY, DisputeState.WON])
async def test_a_refund_is_sent_if_the_dispute_holds_nothing(
    world: World, state: DisputeState
) -> None:
    payment = await create_paid_payment(world)
    await request_refund(world, payment)
    await hear(world, report(payment, state=state, funds=DisputedFunds.UNTOUCHED))
    await process_due_refunds(world)
    assert await world.status(payment) == "REFUNDED"


async def test_a_refund_is_sent_from_the_undisputed_amount(world: World) -> None:
    payment = await create_paid_payment(world)
    await request_refund(world, payment, "1000")
    await hear(world, report(payment, amount_minor=59000))
    await process_due_refunds(world)
    assert await read_books(world, payment) == Books("PARTIALLY_REFUNDED", "1000", "0", 100000, 0)


async def test_a_refund_that_may_have_been_sent_continues_despite_a_dispute(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    world.gateway.answer_refund = PENDING
    refund = await request_refund(world, payment)
    await process_due_refunds(world)
    await hear(world, report(payment))
    await world.rows("UPDATE refund SET next_at = clock() WHERE id = $1", refund.id)
    world.gateway.answer_inquire_refund = DONE
    await process_due_refunds(world)
    assert await world.status(payment) == "REFUNDED"


@pytest.mark.parametrize("is_checked", [False, True])
async def test_disputed_money_is_not_sent_again_to_a_gateway_that_does_not_know_the_refund(
    world: World, *, is_checked: bool
) -> None:
    payment = await create_paid_payment(world)
    refund = await request_refund(world, payment)
    if is_checked:
        await world.perform(CheckQueuedRefunds())
    else:
        world.gateway.answer_refund = OutcomeUnknown(detail="timeout")
        await process_due_refunds(world)
    sent_count = len(world.gateway.refunds)
    world.gateway.answer_inquire_refund = ABSENT
    await world.move_clock(10)
    await process_due_refunds(world)  # queued again
    await hear(world, report(payment))
    for seconds in (60, 200, 1000):
        await world.move_clock(seconds)
        await process_due_refunds(world)
        expected = "FAILED" if seconds == 1000 else "PENDING"
        assert (await read_refund(world, refund)).status == expected
    assert len(world.gateway.refunds) == sent_count
    assert await read_books(world, payment) == Books("PAID", "0", "0", 0, 0)
