"""Requests to Stripe, compared with Stripe's library, and the parsing of responses."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any, get_args

import pytest
import stripe as official

from payintent.core import ids
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.port import (
    Capture,
    FailureReason,
    GatewayRefundState,
    GatewaySessionState,
    NotContacted,
    OutcomeUnknown,
    RefundReport,
    SessionCreated,
    SessionRejected,
    SessionReport,
)
from payintent.gateways.stripe import adapter
from payintent.gateways.stripe.adapter import (
    API_VERSION,
    REPLAY_WINDOW_S,
    SCRIPT_URL,
    StripeGateway,
)
from payintent.gateways.stripe.api import DECIMALS, FAILURES
from payintent.gateways.stripe.events import DELAYED_METHODS
from tests.gateways.scripted_stripe import (
    NOW,
    FakeStripe,
    StripeRequest,
    intent,
    order,
    page,
    ref,
    refund,
    refund_request,
    serve_fake_stripe,
    session_text,
)

OPTIONS = {"api_key", "headers", "idempotency_key", "stripe_version"}
OPEN = SessionReport(state=GatewaySessionState.OPEN)
CLOSED = SessionReport(state=GatewaySessionState.CLOSED)


@pytest.fixture
async def http() -> AsyncGenerator[GatewayHttpClient]:
    http = GatewayHttpClient(timeout_s=30, response_bytes_max=256 * 1024)
    yield http
    await http.close()


@pytest.fixture
def gateway(http: GatewayHttpClient) -> StripeGateway:
    return StripeGateway(http, now=NOW.timestamp)


@pytest.fixture
async def stripe() -> AsyncGenerator[FakeStripe]:
    async with serve_fake_stripe() as stripe:
        yield stripe
        assert stripe.responses == []


def parameter_names(request: StripeRequest) -> set[str]:
    return {name.partition("[")[0] for name in request.form}


def test_the_pinned_api_version_matches_the_official_library() -> None:
    assert official.api_version == API_VERSION
    assert f"https://js.stripe.com/{API_VERSION.partition('.')[2]}/stripe.js" == SCRIPT_URL


async def test_a_creation_uses_only_parameters_of_the_current_api(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    request = order()
    stripe.respond(intent(request))
    assert isinstance(await gateway.create_session(stripe.account, request), SessionCreated)
    [creation] = stripe.requests
    documented = set(official.params.PaymentIntentCreateParams.__annotations__) - OPTIONS
    assert parameter_names(creation) <= documented
    assert "payment_method_types" not in documented
    assert (creation.method, creation.path) == ("POST", "/v1/payment_intents")
    session = session_text(request.session_id)
    excluded = {
        f"excluded_payment_method_types[{number}]": method
        for number, method in enumerate(DELAYED_METHODS)
    }
    assert creation.form == excluded | {
        "amount": "159000",
        "currency": "thb",
        "description": "pay_0000000000000000000007, order B-1001",
        "metadata[session_id]": session,
    }
    assert creation.headers["idempotency-key"] == session
    assert creation.headers["stripe-version"] == API_VERSION
    assert creation.headers["authorization"] == "Bearer sk_test_one"
    assert creation.headers["content-type"] == "application/x-www-form-urlencoded"


def test_delayed_payment_methods_are_excluded() -> None:
    [excluded] = get_args(
        official.params.PaymentIntentCreateParams.__annotations__["excluded_payment_method_types"]
    )
    [[literals, _]] = map(get_args, get_args(excluded))
    documented = set(get_args(literals))
    assert set(DELAYED_METHODS) <= documented
    # According to Stripe's table of payment methods, these succeed or fail days later.
    debits = {"acss_debit", "au_becs_debit", "bacs_debit", "nz_bank_account", "payto", "sepa_debit"}
    slips = {"boleto", "konbini", "multibanco", "oxxo"}
    transfers = {"customer_balance", "sofort", "us_bank_account"}
    assert set(DELAYED_METHODS) == debits | slips | transfers


@pytest.mark.parametrize(
    ("order_id", "description"),
    [
        (None, "pay_0000000000000000000007"),
        ("\x00\n", "pay_0000000000000000000007"),
        ("本-1\n", "pay_0000000000000000000007, order 本-1"),
        ("x" * 5_000, f"pay_0000000000000000000007, order {'x' * 100}"),
    ],
)
async def test_an_intent_is_described_with_its_payment_and_order_ids(
    gateway: StripeGateway, stripe: FakeStripe, order_id: str | None, description: str
) -> None:
    request = order(order_id=order_id)
    stripe.respond(intent(request))
    await gateway.create_session(stripe.account, request)
    assert stripe.requests[0].form["description"] == description


async def test_an_idempotency_error_counts_as_a_response_of_stripe(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    stripe.respond_error(400, type="idempotency_error")
    outcome = await gateway.inquire(stripe.account, ref(order(), None))
    assert isinstance(outcome, OutcomeUnknown)
    assert outcome.has_responded


async def test_a_server_error_that_stripe_repeats_for_a_day_is_not_an_outage(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    for status in (500, 503):
        stripe.respond_error(status, type="api_error")
        outcome = await gateway.close_session(stripe.account, ref(order(), None))
        assert isinstance(outcome, OutcomeUnknown)
        assert outcome.has_responded
    stripe.respond(b"<html>", 503)  # from a proxy in front of Stripe
    outcome = await gateway.close_session(stripe.account, ref(order(), None))
    assert isinstance(outcome, OutcomeUnknown)
    assert not outcome.has_responded


async def test_a_creation_that_stripe_throttles_is_not_repeated(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    """Repeating it, only to cancel the intent, would triple the requests during throttling."""
    stripe.respond_error(429, code="rate_limit")
    outcome = await gateway.create_session(stripe.account, order())
    assert isinstance(outcome, NotContacted)
    assert outcome.is_throttled
    stripe.respond(b"<html>", 429)  # from a proxy, after which Stripe may have received the request
    outcome = await gateway.create_session(stripe.account, order())
    assert type(outcome) is OutcomeUnknown
    assert outcome.is_throttled
    stripe.respond_error(429, code="rate_limit")  # a sent refund stays sent
    outcome = await gateway.inquire_refund(stripe.account, refund_request())
    assert type(outcome) is OutcomeUnknown


async def test_a_missing_permission_is_not_mistaken_for_throttling(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    stripe.respond(page())
    stripe.respond_error(403)
    refund_outcome = await gateway.refund(stripe.account, refund_request())
    stripe.respond_error(403)
    inquiry_outcome = await gateway.inquire(stripe.account, ref(order()))
    for outcome in (refund_outcome, inquiry_outcome):
        assert isinstance(outcome, OutcomeUnknown)
        assert not outcome.is_throttled
        assert outcome.detail == "status 403: invalid_request_error"
    stripe.respond(b"<html>", 403)  # from a proxy in front of Stripe
    outcome = await gateway.inquire(stripe.account, ref(order()))
    assert isinstance(outcome, OutcomeUnknown)
    assert outcome.is_throttled


async def test_a_refund_created_in_the_dashboard_is_found_by_its_reference(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    stripe.respond(page(refund(None, id="re_2"), refund(None, id="re_1", status="pending")))
    report = await gateway.inquire_refund(stripe.account, refund_request(reference="re_1"))
    assert report == RefundReport(state=GatewayRefundState.PENDING, reference="re_1")


async def test_the_buyer_receives_the_parameters_of_the_payment_element(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    request = order()
    stripe.respond(intent(request))
    session = await gateway.create_session(stripe.account, request)
    card = {
        "provider": "stripe",
        "script_url": SCRIPT_URL,
        "publishable_key": "pk_test_one",
        "client_secret": "pi_1_secret_2",
    }
    action = {"type": "embedded_card", "embedded_card": card}
    assert session == SessionCreated(reference="pi_1", next_action=action)


@pytest.mark.parametrize(
    ("currency", "amount_minor", "units"),
    [
        ("USD", 2_550, 2_550),
        ("THB", 159_000, 159_000),
        ("TWD", 100_050, 100_050),  # charged in cents, although payouts are in whole dollars
        ("IDR", 1_500_000_050, 1_500_000_050),
        ("PHP", 99, 99),
        ("JPY", 500, 500),  # zero-decimal: 500 is 500 yen
    ],
)
async def test_amounts_are_sent_and_parsed_in_the_smallest_unit_that_stripe_uses(
    gateway: StripeGateway, stripe: FakeStripe, currency: str, amount_minor: int, units: int
) -> None:
    request = order(currency=currency, amount_minor=amount_minor)
    stripe.respond(intent(request, amount=units))
    assert isinstance(await gateway.create_session(stripe.account, request), SessionCreated)
    assert stripe.requests[0].form["amount"] == str(units)
    stripe.respond(intent(request, amount=units, amount_received=units, status="succeeded"))
    capture = Capture(reference="pi_1", amount_minor=amount_minor, currency=currency)
    paid = SessionReport(state=GatewaySessionState.CAPTURED, capture=capture)
    assert await gateway.inquire(stripe.account, ref(request)) == paid
    refund_order = refund_request(capture=capture, amount_minor=amount_minor)
    stripe.respond(page())
    stripe.respond(refund(refund_order.refund_id))
    await gateway.refund(stripe.account, refund_order)
    assert stripe.requests[-1].form["amount"] == str(units)


def test_only_supported_currencies_are_offered() -> None:
    assert StripeGateway.capabilities.decimals == DECIMALS
    assert set(DECIMALS) == {"USD", "THB", "TWD", "IDR", "PHP", "JPY"}


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404])
async def test_a_creation_that_stripe_refuses_is_rejected_without_stripes_message(
    gateway: StripeGateway, stripe: FakeStripe, status: int
) -> None:
    stripe.respond_error(status, code="parameter_unknown", param="amount")
    detail = f"status {status}: invalid_request_error parameter_unknown amount"
    assert await gateway.create_session(stripe.account, order()) == SessionRejected(detail=detail)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503])
async def test_a_creation_is_unknown_if_stripe_is_overloaded_or_fails(
    gateway: StripeGateway, stripe: FakeStripe, status: int
) -> None:
    stripe.respond_error(status, code="lock_timeout")
    answer = await gateway.create_session(stripe.account, order())
    assert isinstance(answer, OutcomeUnknown)
    assert answer.has_responded == (status == 409)


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b"[]", b'{"error":"no"}', b"\xff"])
@pytest.mark.parametrize("status", [200, 400, 404])
async def test_a_response_in_another_format_is_unknown(
    gateway: StripeGateway, stripe: FakeStripe, status: int, body: bytes
) -> None:
    for _ in range(3):
        stripe.respond(body, status)
    request = order()
    assert isinstance(await gateway.create_session(stripe.account, request), OutcomeUnknown)
    assert isinstance(await gateway.inquire(stripe.account, ref(request)), OutcomeUnknown)
    assert isinstance(
        await gateway.inquire_refund(stripe.account, refund_request()), OutcomeUnknown
    )


async def test_a_reused_idempotency_key_makes_the_outcome_unknown(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    stripe.respond_error(400, type="idempotency_error")
    assert isinstance(await gateway.create_session(stripe.account, order()), OutcomeUnknown)
    stripe.respond(page())
    stripe.respond_error(400, type="idempotency_error")
    assert isinstance(await gateway.refund(stripe.account, refund_request()), OutcomeUnknown)


@pytest.mark.parametrize(
    "changes",
    [
        {"amount": 1},
        {"currency": "usd"},
        {"metadata": {}},
        {"metadata": {"session_id": "sess_0000000000000000000001"}},
        {"client_secret": None},
    ],
)
async def test_a_created_intent_that_does_not_match_the_request_is_unknown(
    gateway: StripeGateway, stripe: FakeStripe, changes: dict[str, Any]
) -> None:
    request = order()
    stripe.respond(intent(request, **changes))
    assert isinstance(await gateway.create_session(stripe.account, request), OutcomeUnknown)


STATES = {
    "requires_payment_method": GatewaySessionState.OPEN,
    "requires_confirmation": GatewaySessionState.OPEN,
    "requires_action": GatewaySessionState.OPEN,
    "processing": GatewaySessionState.AUTHORISING,
    "requires_capture": GatewaySessionState.AUTHORISING,
    "succeeded": GatewaySessionState.CAPTURED,
    "canceled": GatewaySessionState.CLOSED,
}


def test_every_intent_status_of_the_current_api_maps_to_a_state() -> None:
    [documented, _] = get_args(official.PaymentIntent.__annotations__["status"])
    assert set(STATES) == set(get_args(documented))


@pytest.mark.parametrize("status", sorted(STATES))
async def test_an_inquiry_reports_the_status_of_the_intent(
    gateway: StripeGateway, stripe: FakeStripe, status: str
) -> None:
    request = order()
    stripe.respond(intent(request, status=status))
    report = await gateway.inquire(stripe.account, ref(request))
    assert isinstance(report, SessionReport)
    assert report.state is STATES[status]
    assert (report.capture is not None) == (status == "succeeded")
    assert (stripe.requests[0].method, stripe.requests[0].path) == (
        "GET",
        "/v1/payment_intents/pi_1",
    )


async def test_an_undocumented_intent_status_is_unknown(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    request = order()
    stripe.respond(intent(request, status="requires_patience"))
    answer = await gateway.inquire(stripe.account, ref(request))
    assert answer == OutcomeUnknown(
        detail="a payment intent has the unknown status requires_patience", has_responded=True
    )


async def test_a_capture_has_the_received_amount_and_not_the_requested_amount(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    request = order()
    stripe.respond(intent(request, status="succeeded", amount_received=158_999, currency="eur"))
    report = await gateway.inquire(stripe.account, ref(request))
    capture = Capture(reference="pi_1", amount_minor=158_999, currency="EUR")
    assert report == SessionReport(state=GatewaySessionState.CAPTURED, capture=capture)


async def test_a_cancellation_closes_the_session_or_reports_its_capture(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    request = order()
    stripe.respond(intent(request, status="canceled"))
    closed = await gateway.close_session(stripe.account, ref(request))
    assert closed == SessionReport(state=GatewaySessionState.CLOSED)
    stripe.respond_error(400, code="payment_intent_unexpected_state")
    stripe.respond(intent(request, status="succeeded"))
    late_report = await gateway.close_session(stripe.account, ref(request))
    assert isinstance(late_report, SessionReport)
    assert late_report.state is GatewaySessionState.CAPTURED
    calls = [(item.method, item.path) for item in stripe.requests]
    assert calls == [
        ("POST", "/v1/payment_intents/pi_1/cancel"),
        ("POST", "/v1/payment_intents/pi_1/cancel"),
        ("GET", "/v1/payment_intents/pi_1"),
    ]


async def test_a_reference_is_escaped_in_the_url_path(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    stripe.respond_error(404, code="resource_missing")
    await gateway.inquire(stripe.account, ref(order(), "../charges?x=1"))
    # This is the decoded path; the reference is sent as a single segment.
    assert stripe.requests[0].path == "/v1/payment_intents/../charges?x=1"
    assert stripe.requests[0].form == {}


async def test_a_payment_intent_that_stripe_no_longer_finds_is_not_reported_as_absent(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    """The credentials belong to another account, and the buyer may have paid in the first one."""
    stripe.respond_error(404, code="resource_missing")
    report = await gateway.inquire(stripe.account, ref(order()))
    stripe.respond_error(404, code="resource_missing")
    stripe.respond_error(404, code="resource_missing")
    closing_report = await gateway.close_session(stripe.account, ref(order()))
    assert report == closing_report
    assert isinstance(report, OutcomeUnknown)
    assert report.has_responded
    assert "does not exist in this Stripe account" in report.detail


async def test_an_unanswered_creation_is_repeated_unchanged_before_the_session_is_queried(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    request = order()
    stripe.respond(b"lost", 500)
    await gateway.create_session(stripe.account, request)
    stripe.respond(intent(request))  # Stripe replays the first response
    stripe.respond(intent(request, status="succeeded"))
    report = await gateway.inquire(stripe.account, ref(request, None))
    assert isinstance(report, SessionReport)
    assert report.state is GatewaySessionState.CAPTURED
    first, repetition, inquiry = stripe.requests
    assert (repetition.form, repetition.path) == (first.form, first.path)
    assert repetition.headers["idempotency-key"] == first.headers["idempotency-key"]
    assert (inquiry.method, inquiry.path) == ("GET", "/v1/payment_intents/pi_1")


async def test_an_unanswered_creation_is_repeated_before_it_is_closed(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    request = order()
    stripe.respond(intent(request))
    stripe.respond(intent(request, status="canceled"))
    closed = await gateway.close_session(stripe.account, ref(request, None))
    assert closed == SessionReport(state=GatewaySessionState.CLOSED)


async def test_a_creation_is_not_repeated_if_its_idempotency_key_may_have_expired(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    """Nobody can pay this intent, because the client secret never left the service."""
    expired = order(opened_at=NOW - timedelta(seconds=REPLAY_WINDOW_S + 1))
    assert await gateway.inquire(stripe.account, ref(expired, None)) == CLOSED
    assert await gateway.close_session(stripe.account, ref(expired, None)) == CLOSED
    assert stripe.requests == []
    assert REPLAY_WINDOW_S < 24 * 3600
    recent = order(opened_at=NOW - timedelta(seconds=REPLAY_WINDOW_S - 1))
    stripe.respond(intent(recent))
    stripe.respond(intent(recent))
    assert await gateway.inquire(stripe.account, ref(recent, None)) == OPEN


async def test_a_session_is_absent_if_the_repeated_creation_is_refused(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    stripe.respond_error(400, code="amount_too_small")
    absent = await gateway.inquire(stripe.account, ref(order(), None))
    assert absent == SessionReport(state=GatewaySessionState.ABSENT)
    stripe.respond_error(401)  # a changed API key proves nothing about the first request
    assert isinstance(await gateway.inquire(stripe.account, ref(order(), None)), OutcomeUnknown)


REFUND_STATES = {
    "pending": GatewayRefundState.PENDING,
    "requires_action": GatewayRefundState.PENDING,
    "succeeded": GatewayRefundState.DONE,
    "failed": GatewayRefundState.DECLINED,
    "canceled": GatewayRefundState.DECLINED,
}


@pytest.mark.parametrize("status", sorted(REFUND_STATES))
async def test_a_refund_uses_only_parameters_of_the_current_api_and_reports_its_status(
    gateway: StripeGateway, stripe: FakeStripe, status: str
) -> None:
    request = refund_request()
    stripe.respond(page())
    stripe.respond(refund(request.refund_id, status=status))
    report = await gateway.refund(stripe.account, request)
    assert report == RefundReport(state=REFUND_STATES[status], reference="re_1")
    search, creation = stripe.requests
    assert (
        parameter_names(search) <= set(official.params.RefundListParams.__annotations__) - OPTIONS
    )
    assert (
        parameter_names(creation)
        <= set(official.params.RefundCreateParams.__annotations__) - OPTIONS
    )
    text = ids.format_id(ids.REFUND, request.refund_id)
    assert search.form == {"payment_intent": "pi_1", "limit": "100"}
    assert creation.form == {
        "payment_intent": "pi_1",
        "amount": "50000",
        "metadata[refund_id]": text,
    }
    assert creation.headers["idempotency-key"] == text


async def test_a_refund_that_exists_at_stripe_is_not_sent_again(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    request = refund_request()
    stripe.respond(page(refund(None), refund(request.refund_id, status="pending")))
    report = await gateway.refund(stripe.account, request)
    assert report == RefundReport(state=GatewayRefundState.PENDING, reference="re_1")
    assert [item.method for item in stripe.requests] == ["GET"]


async def test_a_refund_is_not_sent_if_the_search_for_it_fails(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    stripe.respond(b"out of order", 500)
    assert isinstance(await gateway.refund(stripe.account, refund_request()), OutcomeUnknown)
    assert [item.method for item in stripe.requests] == ["GET"]


async def test_a_refund_is_searched_for_on_every_page_among_unrelated_refunds(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    request = refund_request()
    foreign_refunds = refund(None, id="re_2", metadata=None), refund(None, id="re_3", status=None)
    stripe.respond(page(*foreign_refunds, more=True))
    stripe.respond(page(refund(request.refund_id)))
    report = await gateway.inquire_refund(stripe.account, request)
    assert report == RefundReport(state=GatewayRefundState.DONE, reference="re_1")
    assert stripe.requests[1].form["starting_after"] == "re_3"


async def test_the_search_for_a_refund_is_limited(
    gateway: StripeGateway, stripe: FakeStripe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "REFUND_PAGES_MAX", 2)
    for _ in range(2):
        stripe.respond(page(refund(None), more=True))
    endless = OutcomeUnknown(detail="too many refunds to search", has_responded=True)
    assert await gateway.inquire_refund(stripe.account, refund_request()) == endless
    stripe.respond(page(more=True))  # an empty page has no cursor
    absent = await gateway.inquire_refund(stripe.account, refund_request())
    assert absent == RefundReport(state=GatewayRefundState.ABSENT)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "charge_already_refunded"),
        (400, "charge_disputed"),
        (400, "amount_too_large"),
        (402, "balance_insufficient"),
    ],
)
async def test_a_refund_that_stripe_refuses_is_declined(
    gateway: StripeGateway, stripe: FakeStripe, status: int, code: str
) -> None:
    stripe.respond(page())
    stripe.respond_error(status, code=code)
    report = await gateway.refund(stripe.account, refund_request())
    detail = f"status {status}: invalid_request_error {code}"
    assert report == RefundReport(state=GatewayRefundState.DECLINED, detail=detail)


async def test_a_refund_of_a_payment_of_another_account_needs_an_operator(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    expected = RefundReport(
        state=GatewayRefundState.ABSENT,
        detail="the payment does not exist in this Stripe account",
        needs_operator=True,
    )
    stripe.respond_error(404, code="resource_missing")
    assert await gateway.inquire_refund(stripe.account, refund_request()) == expected
    stripe.respond_error(404, code="resource_missing")
    assert await gateway.refund(stripe.account, refund_request()) == expected
    assert {item.method for item in stripe.requests} == {"GET"}
    stripe.respond(page())
    stripe.respond_error(404, code="resource_missing")
    assert await gateway.refund(stripe.account, refund_request()) == expected


@pytest.mark.parametrize("status", [401, 403, 409, 429, 500])
async def test_a_refund_with_an_inconclusive_response_is_unknown(
    gateway: StripeGateway, stripe: FakeStripe, status: int
) -> None:
    stripe.respond(page())
    stripe.respond_error(status)
    assert isinstance(await gateway.refund(stripe.account, refund_request()), OutcomeUnknown)


async def test_a_refund_that_does_not_match_the_request_is_unknown(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    stripe.respond(page())
    stripe.respond(refund(refund_request().refund_id))
    assert isinstance(await gateway.refund(stripe.account, refund_request()), OutcomeUnknown)


async def test_all_requests_of_an_operation_share_a_timeout(
    gateway: StripeGateway, stripe: FakeStripe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "OPERATION_TIMEOUT_S", 0)
    request = order()
    too_late = OutcomeUnknown(detail="not finished within 0 s")
    assert await gateway.inquire(stripe.account, ref(request)) == too_late
    assert await gateway.close_session(stripe.account, ref(request)) == too_late
    assert await gateway.refund(stripe.account, refund_request()) == too_late
    assert await gateway.inquire_refund(stripe.account, refund_request()) == too_late


async def test_an_unreachable_gateway_is_reported_as_not_contacted(
    gateway: StripeGateway, stripe: FakeStripe
) -> None:
    account = FakeStripe(url="http://127.0.0.1:9").account
    assert isinstance(await gateway.create_session(account, order()), NotContacted)
    assert isinstance(await gateway.refund(account, refund_request()), NotContacted)


def test_failure_codes_are_documented_and_classified(gateway: StripeGateway) -> None:
    [codes, *_] = get_args(official.PaymentIntent.LastPaymentError.__annotations__["code"])
    documented = set(get_args(codes))
    assert documented & set(FAILURES) >= {
        "card_declined",
        "expired_card",
        "incorrect_cvc",
        "payment_intent_authentication_failure",
        "processing_error",
    }
    assert gateway.classify_failure("insufficient_funds") is FailureReason.DECLINED
    assert gateway.classify_failure("issuer_not_available") is FailureReason.UNKNOWN
    assert gateway.classify_failure("a_word_of_tomorrow") is FailureReason.UNKNOWN
