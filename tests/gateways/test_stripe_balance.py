"""Stripe balance transactions: classification and pagination."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from payintent.core import ids
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.port import OutcomeUnknown, ReportingGateway
from payintent.gateways.settlement_reports import BalanceMovement, MovementKind
from payintent.gateways.stripe.adapter import StripeGateway
from payintent.gateways.stripe.reporting import PAGE_SIZE, StripeBalanceTransaction, to_movement
from tests.gateways.scripted_stripe import NOW, FakeStripe, serve_fake_stripe

AT = 1_795_300_000
DAY = datetime(2026, 11, 21, tzinfo=UTC)
CHARGE: dict[str, Any] = {
    "id": "ch_1",
    "object": "charge",
    "amount": 159_000,
    "currency": "thb",
    "payment_intent": "pi_1",
    "status": "succeeded",
}


@pytest.fixture
async def gateway() -> AsyncGenerator[StripeGateway]:
    http = GatewayHttpClient(timeout_s=30, response_bytes_max=256 * 1024)
    yield StripeGateway(http, now=NOW.timestamp)
    await http.close()


@pytest.fixture
async def stripe() -> AsyncGenerator[FakeStripe]:
    async with serve_fake_stripe() as stripe:
        yield stripe
        assert stripe.responses == []


def transaction(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": "txn_1",
        "object": "balance_transaction",
        "amount": 159_000,
        "available_on": AT + 86_400,
        "created": AT,
        "currency": "thb",
        "description": None,
        "exchange_rate": None,
        "fee": 4_641,
        "fee_details": [],
        "net": 154_359,
        "reporting_category": "charge",
        "source": CHARGE,
        "status": "pending",
        "type": "charge",
    }
    return fields | changes


def movement(**changes: Any) -> BalanceMovement | None:
    encoded = msgspec.json.encode(transaction(**changes))
    return to_movement(msgspec.json.decode(encoded, type=StripeBalanceTransaction))


def page(*transactions: dict[str, Any], more: bool = False) -> dict[str, Any]:
    return {
        "object": "list",
        "url": "/v1/balance_transactions",
        "data": list(transactions),
        "has_more": more,
    }


def test_a_charge_is_read_as_a_payment_in_the_charged_currency() -> None:
    payment = movement(currency="usd", amount=4_500, exchange_rate=0.0283)
    assert payment is not None
    assert (payment.kind, payment.reference) == (MovementKind.PAYMENT, "pi_1")
    assert (payment.amount_minor, payment.currency) == (159_000, "THB")
    assert payment.at == datetime.fromtimestamp(AT, UTC)


def test_a_partially_captured_charge_has_the_captured_amount() -> None:
    payment = movement(source=CHARGE | {"amount_captured": 100_000})
    assert payment is not None
    assert payment.amount_minor == 100_000


def refund(**changes: Any) -> dict[str, Any]:
    return {
        "reporting_category": "refund",
        "type": "refund",
        "amount": -59_000,
        "source": {
            "id": "re_1",
            "object": "refund",
            "amount": 59_000,
            "currency": "thb",
            "status": "succeeded",
        }
        | changes,
    }


def test_only_a_successful_refund_is_read_as_a_movement_and_it_has_our_id() -> None:
    refund_id = uuid4()
    reversal = movement(**refund(metadata={"refund_id": ids.format_id(ids.REFUND, refund_id)}))
    assert reversal is not None
    assert (reversal.kind, reversal.our_id, reversal.amount_minor) == (
        MovementKind.REFUND,
        refund_id,
        59_000,
    )
    for status in ("failed", "canceled", "pending", "requires_action"):
        assert movement(**refund(status=status)) is None


def test_a_dispute_has_the_moved_amount_if_the_currencies_match() -> None:
    source = {"id": "du_1", "object": "dispute", "amount": 159_000, "currency": "thb"}
    fields = {"amount": -150_000, "type": "adjustment", "source": source}
    withdrawal = movement(reporting_category="dispute", **fields)
    assert withdrawal is not None
    assert (withdrawal.kind, withdrawal.reference) == (MovementKind.DISPUTE, "du_1")
    assert (withdrawal.amount_minor, withdrawal.currency) == (150_000, "THB")
    reversal = movement(reporting_category="dispute_reversal", currency="usd", **fields)
    assert reversal is not None
    assert reversal.kind is MovementKind.DISPUTE_REVERSAL
    assert (reversal.amount_minor, reversal.currency) == (159_000, "THB")


def test_payouts_and_returned_payouts_have_different_kinds() -> None:
    source = {"id": "po_1", "object": "payout", "amount": 154_359, "currency": "thb"}
    payout = movement(reporting_category="payout", type="payout", amount=-154_359, source=source)
    reversal = movement(
        reporting_category="payout_reversal", type="payout_failure", amount=154_359, source=source
    )
    assert payout is not None
    assert reversal is not None
    assert (payout.kind, reversal.kind) == (MovementKind.PAYOUT, MovementKind.PAYOUT_REVERSAL)
    assert payout.amount_minor == reversal.amount_minor == 154_359
    assert payout.paid_on == datetime.fromtimestamp(AT + 86_400, UTC).date()


@pytest.mark.parametrize(
    "changes",
    [
        {"source": None},
        {"source": "ch_1"},
        {"reporting_category": "fee", "type": "stripe_fee"},
        {"reporting_category": "dispute", "type": "adjustment"},
    ],
)
def test_unsupported_balance_transactions_are_skipped(changes: dict[str, Any]) -> None:
    assert movement(**changes) is None


async def test_a_page_is_requested_by_its_period_and_the_previous_cursor(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    assert isinstance(gateway, ReportingGateway)
    stripe.respond(
        page(transaction(), transaction(id="txn_2", reporting_category="tax"), more=True)
    )
    stripe.respond(page())
    first_page = await gateway.list_movements(stripe.account, DAY, DAY + timedelta(days=1), None)
    assert not isinstance(first_page, OutcomeUnknown)
    assert ([item.reference for item in first_page.movements], first_page.after) == (
        ["pi_1"],
        "txn_2",
    )
    last_page = await gateway.list_movements(
        stripe.account, DAY, DAY + timedelta(days=1), first_page.after
    )
    assert not isinstance(last_page, OutcomeUnknown)
    assert (last_page.movements, last_page.after) == ([], None)
    first_request, second_request = stripe.requests
    assert first_request.path == "/v1/balance_transactions"
    assert first_request.form == {
        "created[gte]": str(int(DAY.timestamp())),
        "created[lt]": str(int(DAY.timestamp()) + 86_400),
        "expand[]": "data.source",
        "limit": str(PAGE_SIZE),
    }
    assert second_request.form == first_request.form | {"starting_after": "txn_2"}


async def test_the_fees_of_a_payout_are_summed_over_all_pages(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    payout = transaction(id="txn_3", reporting_category="payout", type="payout", fee=100)
    fee = transaction(id="txn_2", reporting_category="fee", amount=-250, fee=0, net=-250)
    stripe.respond(page(payout, fee, more=True))
    stripe.respond(page(transaction()))
    assert await gateway.sum_payout_fees(stripe.account, "po_1") == 100 + 250 + 4_641
    assert [request.form.get("starting_after") for request in stripe.requests] == [None, "txn_2"]
    assert {request.form["payout"] for request in stripe.requests} == {"po_1"}


async def test_the_fees_of_a_manual_payout_are_zero(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    stripe.respond_error(
        400, message="Balance transaction history can only be filtered on automatic"
    )
    assert await gateway.sum_payout_fees(stripe.account, "po_1") == 0


@pytest.mark.parametrize("status", [400, 404])
async def test_the_fees_of_a_payout_are_unknown_if_a_proxy_rejects_the_request(
    gateway: StripeGateway, stripe: FakeStripe, status: int
) -> None:
    stripe.respond(b"<html>", status)
    assert isinstance(await gateway.sum_payout_fees(stripe.account, "po_1"), OutcomeUnknown)


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"object": "list"}'])
async def test_an_invalid_response_to_a_list_request_is_an_unknown_outcome(
    gateway: StripeGateway, stripe: FakeStripe, body: bytes
) -> None:
    stripe.respond(body)
    stripe.respond(body, 503)
    for _ in range(2):
        movements = await gateway.list_movements(stripe.account, DAY, DAY, None)
        assert isinstance(movements, OutcomeUnknown)
