"""Disputes listed by Stripe are compared with our disputes, the ledger and the cases."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from payintent.accounting.ledger_check_store import find_differences
from payintent.cases.model import CaseKind
from payintent.cases.operations import ListCases
from payintent.disputes.record import record_dispute
from payintent.gateways.port import DisputedFunds, DisputeReport, DisputeState
from payintent.payments.model import Payment
from payintent.reconciliation.operations import ShowReconciliationRun
from payintent.reconciliation.runs_store import RunRecord
from payintent.refunds.resolve_case import ResolveCase
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.reconciliation.stripe_shop import Shop, stripe_service
from tests.support.fakes import FakeGateway, captured, declined

pytestmark = pytest.mark.full


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with stripe_service(settings, gateway) as service:
        yield service


async def report(
    shop: Shop,
    payment: Payment,
    reference: str,
    state: DisputeState = DisputeState.OPEN,
    funds: DisputedFunds = DisputedFunds.WITHDRAWN,
    amount_minor: int = 159_000,
) -> None:
    """Report a dispute with a callback."""
    [row] = await shop.world.rows("SELECT reference FROM session WHERE payment_id = $1", payment.id)
    report = DisputeReport(
        reference=reference,
        capture=row["reference"],
        state=state,
        funds=funds,
        amount_minor=amount_minor,
        currency="THB",
        reason="fraudulent",
        respond_by=None,
    )
    service = shop.world.service
    async with service.database.transaction() as tx:
        await record_dispute(tx, shop.account_id, report)


async def win(shop: Shop, payment: Payment, reference: str) -> None:
    await shop.decide(reference, "won")
    await report(shop, payment, reference, DisputeState.WON, DisputedFunds.REINSTATED)


async def list_sides(shop: Shop, run: RunRecord) -> list[tuple[Any, ...]]:
    """List a run's dispute totals for both sides."""
    sums = (await shop.world.perform(ShowReconciliationRun(run_id=run.id))).sums
    return [
        (side.type, side.lines, side.gateway, side.service, side.ledger, side.merchants)
        for side in sums
        if side.type.startswith("dispute")
    ]


async def list_differences(shop: Shop) -> list[str]:
    """List the comparison's cases, without the dispute's own case."""
    return [subject for subject in await shop.subjects() if subject.startswith("stripe ")]


async def test_a_dispute_and_its_reversal_match_on_all_four_sides(shop: Shop) -> None:
    payment = await shop.sell()
    reference = await shop.dispute(payment)
    await report(shop, payment, reference)
    [run] = await shop.next_day()
    assert (run.status, run.opened) == ("matched", 0)
    assert await list_sides(shop, run) == [("dispute", 1, *["1590"] * 4)]
    await win(shop, payment, reference)
    run, _ = await shop.next_day()
    assert run.status == "matched"
    assert await list_sides(shop, run) == [
        ("dispute", 1, *["1590"] * 4),
        ("dispute_reversal", 1, *["1590"] * 4),
    ]
    assert await list_differences(shop) == []
    assert await find_differences(shop.world.service.database) == []


async def test_an_unreported_dispute_opens_a_case(shop: Shop) -> None:
    payment = await shop.sell()
    reference = await shop.dispute(payment)
    [run] = await shop.next_day()
    assert (run.status, run.opened) == ("differs", 1)
    [subject] = await list_differences(shop)
    assert subject.startswith(f"stripe dispute {reference}: extra, 1590.00 THB at ")


async def test_unreported_withdrawals_and_reinstatements_open_cases_with_our_state(
    shop: Shop,
) -> None:
    payments = [await shop.sell() for _ in range(2)]
    withdrawn, reinstated = [await shop.dispute(payment) for payment in payments]
    await report(shop, payments[0], withdrawn, funds=DisputedFunds.UNTOUCHED)
    await report(shop, payments[1], reinstated)
    await shop.decide(reinstated, "won")
    await shop.next_day()
    subjects = await list_differences(shop)
    assert len(subjects) == 2
    assert subjects[0].startswith(f"stripe dispute {withdrawn}: extra, 1590.00 THB at ")
    assert subjects[0].endswith(", ours is untouched")
    assert subjects[1].startswith(f"stripe dispute_reversal {reinstated}: extra, 1590.00 THB at ")
    assert subjects[1].endswith(", ours is withdrawn")


async def test_a_different_amount_and_an_unlisted_dispute_open_cases(
    shop: Shop,
) -> None:
    payments = [await shop.sell() for _ in range(2)]
    reference = await shop.dispute(payments[0])
    await report(shop, payments[0], reference, amount_minor=100_000)
    await report(shop, payments[1], "du_unlisted", DisputeState.WON, DisputedFunds.REINSTATED)
    [run] = await shop.next_day()
    assert run.status == "differs"
    subjects = await list_differences(shop)
    assert f"stripe dispute {reference}: different, 1590.00 THB there, 1000.00 THB here" in subjects
    [missing] = [item for item in subjects if "dispute du_unlisted: missing" in item]
    assert missing.startswith("stripe dispute du_unlisted: missing, 1590.00 THB at ")
    assert any(item.startswith("stripe dispute_reversal du_unlisted: missing") for item in subjects)


async def test_a_dispute_that_differs_from_the_ledger_opens_a_case(shop: Shop) -> None:
    payment = await shop.sell()
    reference = await shop.dispute(payment)
    await report(shop, payment, reference)
    await shop.world.rows("ALTER TABLE ledger_entry DISABLE TRIGGER ALL")
    await shop.world.rows("DELETE FROM ledger_entry WHERE fact = 'dispute_opened'")
    await shop.next_day()
    assert await list_differences(shop) == [
        f"stripe dispute {reference}: ledger, 0 THB in the ledger, 1590.00 THB disputed"
    ]


async def test_a_payout_includes_the_fee_of_a_settled_dispute(shop: Shop) -> None:
    payments = [await shop.sell() for _ in range(2)]
    reference = await shop.dispute(payments[0])
    await report(shop, payments[0], reference)
    await shop.pay_out()
    await shop.next_day()
    [payout] = await shop.payouts()
    fees = 2 * (159_000 * 29 // 1_000 + 30) + 1_500
    assert (int(payout.amount_minor), int(payout.fee_minor)) == (159_000 - fees, fees)


async def test_a_lost_dispute_of_dismissed_money_has_no_ledger_entries_to_compare(
    shop: Shop,
) -> None:
    world, payment = shop.world, await shop.pay()
    [session] = await world.rows("SELECT * FROM session WHERE payment_id = $1", payment.id)
    for session_report in (declined(), captured(159_000, reference=session["reference"])):
        await world.report(payment, session["id"], session_report)
    [case] = await world.perform(ListCases(kind=CaseKind.LATE_PAYMENT))
    await world.perform(ResolveCase(case_id=case.id, resolution="dismiss", note="lost"))
    reference = await shop.dispute(payment)
    await report(shop, payment, reference, DisputeState.LOST)
    [run] = await shop.next_day()
    assert run.status == "matched", await list_differences(shop)
