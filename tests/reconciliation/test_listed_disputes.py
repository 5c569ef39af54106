"""Disputes listed by Stripe are compared with our disputes, the ledger and the cases."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from payintent.accounting.ledger_check_store import find_differences
from payintent.disputes.record import record_dispute
from payintent.gateways.port import DisputedFunds, DisputeReport, DisputeState
from payintent.payments.model import Payment
from payintent.reconciliation.operations import ShowReconciliationRun
from payintent.reconciliation.runs_store import RunRecord
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.reconciliation.stripe_shop import Shop, stripe_service
from tests.support.fakes import FakeGateway

pytestmark = pytest.mark.full


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with stripe_service(settings, gateway) as service:
        yield service


async def hear(
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


async def won(shop: Shop, payment: Payment, reference: str) -> None:
    await shop.decide(reference, "won")
    await hear(shop, payment, reference, DisputeState.WON, DisputedFunds.REINSTATED)


async def sides(shop: Shop, run: RunRecord) -> list[tuple[Any, ...]]:
    """The disputes of both sides in a run."""
    sums = (await shop.world.perform(ShowReconciliationRun(run_id=run.id))).sums
    return [
        (side.type, side.lines, side.gateway, side.service, side.ledger, side.merchants)
        for side in sums
        if side.type.startswith("dispute")
    ]


async def differences(shop: Shop) -> list[str]:
    """List the comparison's cases, without the dispute's own case."""
    return [subject for subject in await shop.subjects() if subject.startswith("stripe ")]


async def test_a_dispute_and_its_reversal_match_on_all_four_sides(shop: Shop) -> None:
    payment = await shop.sell()
    reference = await shop.dispute(payment)
    await hear(shop, payment, reference)
    [run] = await shop.next_day()
    assert (run.status, run.opened) == ("matched", 0)
    assert await sides(shop, run) == [("dispute", 1, *["1590"] * 4)]
    await won(shop, payment, reference)
    run, _ = await shop.next_day()
    assert run.status == "matched"
    assert await sides(shop, run) == [
        ("dispute", 1, *["1590"] * 4),
        ("dispute_reversal", 1, *["1590"] * 4),
    ]
    assert await differences(shop) == []
    assert await find_differences(shop.world.service.database) == []


async def test_an_unreported_dispute_opens_a_case(shop: Shop) -> None:
    payment = await shop.sell()
    reference = await shop.dispute(payment)
    [run] = await shop.next_day()
    assert (run.status, run.opened) == ("differs", 1)
    [subject] = await differences(shop)
    assert subject.startswith(f"stripe dispute {reference}: extra, 1590.00 THB at ")


async def test_unreported_withdrawals_and_reinstatements_open_cases_with_our_state(
    shop: Shop,
) -> None:
    payments = [await shop.sell() for _ in range(2)]
    taken, back = [await shop.dispute(payment) for payment in payments]
    await hear(shop, payments[0], taken, funds=DisputedFunds.UNTOUCHED)
    await hear(shop, payments[1], back)
    await shop.decide(back, "won")
    await shop.next_day()
    told = await differences(shop)
    assert len(told) == 2
    assert told[0].startswith(f"stripe dispute {taken}: extra, 1590.00 THB at ")
    assert told[0].endswith(", ours is untouched")
    assert told[1].startswith(f"stripe dispute_reversal {back}: extra, 1590.00 THB at ")
    assert told[1].endswith(", ours is withdrawn")


async def test_a_different_amount_and_an_unlisted_dispute_open_cases(
    shop: Shop,
) -> None:
    payments = [await shop.sell() for _ in range(2)]
    reference = await shop.dispute(payments[0])
    await hear(shop, payments[0], reference, amount_minor=100_000)
    await hear(shop, payments[1], "du_unlisted", DisputeState.WON, DisputedFunds.REINSTATED)
    [run] = await shop.next_day()
    assert run.status == "differs"
    told = await differences(shop)
    assert f"stripe dispute {reference}: different, 1590.00 THB there, 1000.00 THB here" in told
    [missing] = [item for item in told if "dispute du_unlisted: missing" in item]
    assert missing.startswith("stripe dispute du_unlisted: missing, 1590.00 THB at ")
    assert any(item.startswith("stripe dispute_reversal du_unlisted: missing") for item in told)


async def test_a_dispute_that_differs_from_the_ledger_opens_a_case(shop: Shop) -> None:
    payment = await shop.sell()
    reference = await shop.dispute(payment)
    await hear(shop, payment, reference)
    await shop.world.rows("ALTER TABLE ledger_entry DISABLE TRIGGER ALL")
    await shop.world.rows("DELETE FROM ledger_entry WHERE fact = 'dispute_opened'")
    await shop.next_day()
    assert await differences(shop) == [
        f"stripe dispute {reference}: ledger, 0 THB in the ledger, 1590.00 THB disputed"
    ]


async def test_a_payout_includes_the_fee_of_a_settled_dispute(shop: Shop) -> None:
    payments = [await shop.sell() for _ in range(2)]
    reference = await shop.dispute(payments[0])
    await hear(shop, payments[0], reference)
    await shop.pay_out()
    await shop.next_day()
    [payout] = await shop.payouts()
    kept = 2 * (159_000 * 29 // 1_000 + 30) + 1_500
    assert (int(payout.amount_minor), int(payout.fee_minor)) == (159_000 - kept, kept)
