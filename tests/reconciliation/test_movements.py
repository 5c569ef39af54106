"""Stripe's balance transactions are compared daily, and its payouts are recorded once."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from payintent.accounting.gateway_payouts_store import GatewayPayoutRecord
from payintent.accounting.ledger_operations import CheckLedger
from payintent.accounting.payouts_operations import (
    RecordGatewayPayout,
    ReverseGatewayPayout,
)
from payintent.db.locks import hold_advisory_lock
from payintent.gateways.port import (
    GatewayRefundState,
    OutcomeUnknown,
    OutsideRefund,
    VerifiedCallback,
)
from payintent.gateways.stripe.adapter import StripeGateway
from payintent.reconciliation.movements import compare_movements
from payintent.reconciliation.operations import ListReconciliationRuns, ShowReconciliationRun
from payintent.runtime.settings import Settings
from payintent.service import Service
from payintent.worker import reconcile_movements
from tests.accounting.test_payouts import balance
from tests.reconciliation.stripe_shop import Shop, stripe_service
from tests.refunds.refund_setup import Books, process_due_refunds, read_books, request_refund
from tests.support.fakes import FakeGateway
from tests.support.stripe import Buyer


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with stripe_service(settings, gateway) as service:
        yield service


async def test_matching_payments_and_refunds_produce_a_matched_daily_run(shop: Shop) -> None:
    payment = await shop.sell()
    await shop.sell()
    await request_refund(shop.world, payment, "590.00")
    assert await process_due_refunds(shop.world) == 1
    [run] = await shop.next_day()
    assert (run.status, run.source, run.lines, run.opened) == ("matched", "api", 3, 0)
    sums = (await shop.world.perform(ShowReconciliationRun(run_id=run.id))).sums
    assert [(side.type, side.lines, side.records, side.gateway) for side in sums] == [
        ("payment", 2, 2, "3180"),
        ("refund", 1, 1, "590"),
    ]
    assert {side.service == side.ledger == side.merchants for side in sums} == {True}
    assert await shop.compare() == [run]
    assert await shop.subjects() == []


async def test_a_dashboard_refund_with_a_lost_callback_is_recorded_once(
    shop: Shop,
) -> None:
    payment = await shop.sell()
    buyer = Buyer(shop.url, shop.http)
    [row] = await shop.world.rows("SELECT reference FROM capture")
    reference = await buyer.refund_in_dashboard(row["reference"], 59_000)
    [run] = await shop.next_day()
    expected = Books("PARTIALLY_REFUNDED", "590", "0", 59_000, 0)
    assert await read_books(shop.world, payment) == expected
    assert (run.status, run.lines, run.opened) == ("matched", 2, 0)
    outside_refund = OutsideRefund(
        reference=reference,
        capture=row["reference"],
        state=GatewayRefundState.DONE,
        amount_minor=59_000,
        currency="THB",
    )
    callback = VerifiedCallback(id="evt_late", outside_refund=outside_refund)
    await shop.world.service.callback_receiver.receive(shop.account_id, callback, b"{}")
    await shop.next_day()
    assert await read_books(shop.world, payment) == expected
    assert await shop.world.cases(payment) == ["OUTSIDE_REFUND"]
    assert await shop.world.perform(CheckLedger()) == []


async def test_an_unknown_payment_opens_a_case(shop: Shop) -> None:
    payment = await shop.pay()
    [run] = await shop.next_day()
    assert (run.status, run.opened) == ("differs", 1)
    [subject] = await shop.subjects()
    assert subject.startswith("stripe payment pi_")
    assert ": extra, 1590.00 THB at " in subject
    assert await shop.world.status(payment) != "PAID"


async def test_a_capture_that_stripe_does_not_list_opens_a_case(shop: Shop) -> None:
    await shop.sell()
    await shop.world.rows("UPDATE capture SET reference = 'pi_other'")
    [run] = await shop.next_day()
    assert (run.status, run.opened) == ("differs", 2)
    listed, captured = sorted(await shop.subjects(), key=lambda subject: "missing" in subject)
    assert ": extra, 1590.00 THB at " in listed
    assert captured.startswith("stripe payment pi_other: missing, 1590.00 THB at ")


async def test_every_completed_day_is_compared_once(shop: Shop) -> None:
    await shop.sell()
    [first] = await shop.next_day()
    shop.days += 2
    runs = await shop.next_day()
    assert [run.status for run in runs] == ["matched"] * 4
    assert runs[-1] == first
    assert len({run.name for run in runs}) == 4
    # A payment is also listed on the following days, and matches on each of them.
    assert [run.lines for run in runs] == [1, 1, 1, 1]


async def test_a_payout_is_recorded_once_with_the_stripe_fees(shop: Shop) -> None:
    await shop.sell()
    await shop.sell()
    reference = await shop.pay_out()
    await shop.next_day()
    await shop.next_day()
    [payout] = await shop.payouts()
    assert (payout.reference, payout.recorded_by) == (reference, "reconciliation")
    fees = 2 * (159_000 * 29 // 1_000 + 30)
    assert (int(payout.amount_minor), int(payout.fee_minor)) == (318_000 - fees, fees)
    assert await balance(shop.world, f"gateway_clearing:{shop.account_id}") == 0
    assert await shop.world.perform(CheckLedger()) == []


async def test_a_failed_payout_is_reversed_once(shop: Shop) -> None:
    await shop.sell()
    reference = await shop.pay_out()
    await shop.next_day()
    await shop.fail(reference)
    await shop.world.rows("DELETE FROM reconciliation_sum")
    await shop.world.rows("DELETE FROM reconciliation_run")
    await shop.compare()
    await shop.next_day()
    [payout] = await shop.payouts()
    assert payout.reversed_by == "reconciliation"
    assert await shop.world.perform(CheckLedger()) == []


async def _record(shop: Shop, reference: str, amount: str) -> GatewayPayoutRecord:
    return await shop.world.perform(
        RecordGatewayPayout(
            account_id=shop.account_id, amount=amount, currency="THB", reference=reference
        )
    )


async def test_a_payout_recorded_again_by_a_person_is_not_reversed_again(shop: Shop) -> None:
    """The listed days overlap, so a failed payout is listed more than once."""
    await shop.sell()
    reference = await shop.pay_out()
    await shop.next_day()
    await shop.fail(reference)
    await shop.next_day()
    assert [payout.reversed_by for payout in await shop.payouts()] == ["reconciliation"]
    await _record(shop, reference, "1543.59")
    await shop.next_day()
    assert sorted(str(payout.reversed_by) for payout in await shop.payouts()) == [
        "None",
        "reconciliation",
    ]


async def test_a_payout_recorded_manually_with_another_amount_stays_and_opens_a_case(
    shop: Shop,
) -> None:
    await shop.sell()
    reference = await shop.pay_out()
    await _record(shop, reference, "1.00")
    await shop.next_day()
    [payout] = await shop.payouts()
    assert payout.amount == "1.00"
    assert await shop.subjects() == [
        f"stripe payout {reference}: different, 1543.59 THB there, 1.00 THB here"
    ]


async def test_a_manually_reversed_payout_is_not_recorded_again(shop: Shop) -> None:
    await shop.sell()
    reference = await shop.pay_out()
    recorded = await _record(shop, reference, "1.00")
    await shop.world.perform(ReverseGatewayPayout(payout_id=recorded.id, note="not ours"))
    await shop.next_day()
    [payout] = await shop.payouts()
    assert payout.reversed_by != "reconciliation"


async def test_an_unreachable_gateway_starts_no_run_and_is_queried_again_later(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.sell()

    async def fail_to_list(*args: Any) -> OutcomeUnknown:
        return OutcomeUnknown(detail=f"away {len(args)}")

    with monkeypatch.context() as patch:
        patch.setattr(StripeGateway, "list_movements", fail_to_list)
        assert await shop.next_day() == []
    assert [run.status for run in await shop.compare()] == ["matched"]


async def test_concurrent_workers_compare_a_day_once(shop: Shop) -> None:
    await shop.sell()
    await shop.end_day()
    await asyncio.gather(*(compare_movements(shop.comparison) for _ in range(3)))
    [run] = await shop.compare()
    assert (run.status, run.attempts) == ("matched", 1)
    url = shop.world.service.settings.database_url
    async with hold_advisory_lock(url, f"movements:{shop.account_id}") as lock:
        assert lock.is_held
        assert await shop.next_day() == [run]


async def test_a_worker_compares_accounts_whose_gateway_lists_movements(shop: Shop) -> None:
    await shop.sell()
    await shop.end_day()
    await reconcile_movements(replace(shop.world.service))
    [run] = await shop.world.perform(ListReconciliationRuns())
    assert (run.account_id, run.status) == (shop.account_id, "matched")
