"""Stripe events are verified as in the official library, and parsed in every API version."""

import json
from datetime import UTC, datetime
from typing import Any, get_args
from uuid import uuid4

import pytest
import stripe as official
from hypothesis import given
from hypothesis import strategies as st

from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.port import (
    CallbackRequest,
    Capture,
    DisputedFunds,
    DisputeReport,
    DisputeState,
    FailureReason,
    FraudWarning,
    GatewayAccount,
    GatewayRefundState,
    GatewaySessionState,
    InvalidCallbackError,
    OutsideRefund,
    RefundReport,
    SessionReport,
    UnusableCallbackError,
    VerifiedCallback,
)
from payintent.gateways.stripe.adapter import StripeGateway
from payintent.gateways.stripe.events import CALLBACK_TOLERANCE_S, verify_signature
from payintent_sandbox.emulators.stripe.events import signature
from tests.gateways.scripted_stripe import NOW, dispute, fraud_warning, intent, order, refund
from tests.support.stripe import WEBHOOK_SECRET, credentials

ACCOUNT = GatewayAccount(id=1, provider="stripe", base_url="http://x", credentials=credentials())
NOW_S = int(NOW.timestamp())
official_signature = official.WebhookSignature.generate_signature_header


@pytest.fixture
def gateway() -> StripeGateway:
    return StripeGateway(GatewayHttpClient(timeout_s=1, response_bytes_max=1), now=NOW.timestamp)


def event(kind: str, resource: Any, **changes: Any) -> str:
    return json.dumps(
        {
            "id": "evt_1",
            "object": "event",
            "api_version": "2026-10-28.endive",
            "created": NOW_S,
            "data": {"object": resource},
            "type": kind,
        }
        | changes
    )


def make_callback(body: str, header: str | None = None) -> CallbackRequest:
    header = official_signature(body, WEBHOOK_SECRET, NOW_S) if header is None else header
    headers = {"stripe-signature": header}
    return CallbackRequest(method="POST", headers=headers, query={}, body=body.encode())


def parse(gateway: StripeGateway, kind: str, resource: Any) -> VerifiedCallback:
    return gateway.parse_callback(ACCOUNT, make_callback(event(kind, resource)))


def is_valid(header: str, body: str, secret: str = WEBHOOK_SECRET) -> bool:
    try:
        verify_signature(secret, header, body.encode(), NOW_S)
    except InvalidCallbackError:
        return False
    return True


def is_officially_valid(header: str, body: str) -> bool:
    try:
        return official.WebhookSignature.verify_header(body, header, WEBHOOK_SECRET)
    except official.SignatureVerificationError:
        return False


@given(body=st.text(), secret=st.text(min_size=1).filter(str.strip))
def test_signatures_of_the_official_library_are_verified(body: str, secret: str) -> None:
    assert is_valid(official_signature(body, secret, NOW_S), body, secret)


@given(
    body=st.text(), start=st.integers(0, 80), end=st.integers(0, 80), inserted=st.text(max_size=3)
)
def test_a_changed_signature_is_refused_if_the_official_library_refuses_it(
    body: str, start: int, end: int, inserted: str
) -> None:
    header = official_signature(body, WEBHOOK_SECRET, NOW_S)
    changed = header[:start] + inserted + header[max(start, end) :]
    assert not is_valid(changed, body) or is_officially_valid(changed, body)


def test_the_official_library_verifies_signatures_of_the_sandbox() -> None:
    body = event("payment_intent.succeeded", intent(order(), status="succeeded"))
    header = signature(WEBHOOK_SECRET, body.encode(), NOW_S)
    assert header == official_signature(body, WEBHOOK_SECRET, NOW_S)
    assert is_officially_valid(header, body)


def test_a_single_valid_signature_among_several_is_sufficient() -> None:
    header = official_signature("{}", WEBHOOK_SECRET, NOW_S)
    stamp, valid = header.split(",")
    assert is_valid(f"{stamp},v1={'0' * 64},{valid}", "{}")
    assert is_valid(f"{stamp},{valid},v1={'0' * 64}", "{}")
    assert not is_valid(f"{stamp},v1={'0' * 64},v0={valid[3:]}", "{}")


@pytest.mark.parametrize("age_s", [CALLBACK_TOLERANCE_S + 1, -CALLBACK_TOLERANCE_S - 1])
def test_a_signature_outside_the_time_tolerance_is_refused(age_s: int) -> None:
    assert not is_valid(official_signature("{}", WEBHOOK_SECRET, NOW_S - age_s), "{}")
    assert is_valid(
        official_signature("{}", WEBHOOK_SECRET, NOW_S - age_s + age_s // abs(age_s)), "{}"
    )


@pytest.mark.parametrize("secret", ["", "  "])
def test_an_account_without_a_secret_refuses_every_signature(secret: str) -> None:
    assert not is_valid(signature(secret, b"{}", NOW_S), "{}", secret)


def test_a_successful_payment_has_the_same_capture_in_every_api_version(
    gateway: StripeGateway,
) -> None:
    request = order()
    capture = Capture(reference="pi_1", amount_minor=159_000, currency="THB")
    current = intent(request, status="succeeded")
    older = {name: value for name, value in current.items() if name != "amount_received"} | {
        "latest_charge": {"id": "ch_1", "object": "charge"},
        "charges": {"object": "list", "data": [{"id": "ch_1"}]},
    }
    for resource in (current, older):
        callback = parse(gateway, "payment_intent.succeeded", resource)
        report = SessionReport(state=GatewaySessionState.CAPTURED, capture=capture)
        assert callback == VerifiedCallback(
            id="evt_1", session_id=request.session_id, report=report
        )


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, FailureReason.UNKNOWN),
        ({"code": "payment_intent_authentication_failure"}, FailureReason.DECLINED),
        ({"type": "card_error", "code": "card_declined"}, FailureReason.DECLINED),
        (
            {"type": "card_error", "code": "card_declined", "decline_code": "try_again_later"},
            FailureReason.UNKNOWN,
        ),
        (
            {"type": "card_error", "code": "expired_card", "decline_code": "new_word"},
            FailureReason.DECLINED,
        ),
    ],
)
def test_a_declined_attempt_does_not_end_the_session(
    gateway: StripeGateway, error: dict[str, str] | None, reason: FailureReason
) -> None:
    resource = intent(order(), last_payment_error=error)
    callback = parse(gateway, "payment_intent.payment_failed", resource)
    assert callback.report == SessionReport(state=GatewaySessionState.ATTEMPTED, reason=reason)


def test_a_refund_failure_reason_is_cleaned_and_truncated(gateway: StripeGateway) -> None:
    resource = refund(uuid4(), status="failed", failure_reason="\x00lost\n" + "x" * 1_000)
    report = parse(gateway, "refund.failed", resource).refund
    assert report is not None
    assert report.detail == ("lost" + "x" * 1_000)[:200]


def test_a_cancelled_intent_closes_the_session(gateway: StripeGateway) -> None:
    callback = parse(gateway, "payment_intent.canceled", intent(order(), status="canceled"))
    assert callback.report == SessionReport(state=GatewaySessionState.CLOSED)


@pytest.mark.parametrize(
    "kind", ["refund.created", "refund.updated", "refund.failed", "charge.refund.updated"]
)
def test_every_refund_event_reports_the_refund_status(gateway: StripeGateway, kind: str) -> None:
    refund_id = uuid4()
    resource = refund(refund_id, status="failed", failure_reason="expired_or_canceled_card")
    report = RefundReport(
        state=GatewayRefundState.DECLINED, reference="re_1", detail="expired_or_canceled_card"
    )
    at_stripe = outside_refund(
        state=GatewayRefundState.DECLINED, detail="expired_or_canceled_card"
    )  # used if the id belongs to a different installation
    assert parse(gateway, kind, resource) == VerifiedCallback(
        id="evt_1", refund_id=refund_id, refund=report, outside_refund=at_stripe
    )


def outside_refund(**changes: Any) -> OutsideRefund:
    fields: dict[str, Any] = {
        "reference": "re_1",
        "capture": "pi_1",
        "state": GatewayRefundState.DONE,
        "amount_minor": 50_000,
        "currency": "THB",
    }
    return OutsideRefund(**fields | changes)


@pytest.mark.parametrize("metadata", [None, {}, {"refund_id": "ref_!"}, {"why": "by Ann"}])
@pytest.mark.parametrize("kind", ["refund.created", "refund.updated", "charge.refund.updated"])
def test_a_refund_created_in_the_dashboard_is_an_outside_refund(
    gateway: StripeGateway, kind: str, metadata: dict[str, str] | None
) -> None:
    resource = refund(None, metadata=metadata)
    assert parse(gateway, kind, resource) == VerifiedCallback(
        id="evt_1", outside_refund=outside_refund()
    )
    pending = parse(gateway, kind, resource | {"status": "pending"}).outside_refund
    assert pending == outside_refund(state=GatewayRefundState.PENDING)


@pytest.mark.parametrize("event", ["created", "updated"])
def test_an_early_fraud_warning_names_the_capture_and_the_reason(
    gateway: StripeGateway, event: str
) -> None:
    warning = FraudWarning(reference="issfr_1", capture="pi_1", reason="made_with_stolen_card")
    callback = parse(gateway, f"radar.early_fraud_warning.{event}", fraud_warning())
    assert callback == VerifiedCallback(id="evt_1", fraud_warning=warning)


def test_a_thin_event_is_distinguished_from_an_invalid_signature(gateway: StripeGateway) -> None:
    thin = {
        "id": "evt_test_1",
        "object": "v2.core.event",
        "type": "v1.payment_intent.succeeded",
        "livemode": False,
        "created": "2026-11-22T03:00:00.000Z",
        "related_object": {"id": "pi_1", "type": "payment_intent", "url": "/v1/x"},
    }
    with pytest.raises(UnusableCallbackError, match="choose the snapshot payload style"):
        gateway.parse_callback(ACCOUNT, make_callback(json.dumps(thin)))
    with pytest.raises(InvalidCallbackError, match="signature") as exception:
        gateway.parse_callback(ACCOUNT, make_callback(json.dumps(thin), f"t={NOW_S},v1=00"))
    assert not isinstance(exception.value, UnusableCallbackError)


DISPUTES = {
    "warning_needs_response": DisputeState.INQUIRY,
    "warning_under_review": DisputeState.INQUIRY,
    "warning_closed": DisputeState.CLOSED,
    "prevented": DisputeState.CLOSED,
    "needs_response": DisputeState.OPEN,
    "under_review": DisputeState.UNDER_REVIEW,
    "appeal_needs_response": DisputeState.OPEN,
    "appeal_under_review": DisputeState.UNDER_REVIEW,
    "won": DisputeState.WON,
    "lost": DisputeState.LOST,
}


def test_every_dispute_status_of_the_current_api_maps_to_a_state() -> None:
    [documented, _] = get_args(official.Dispute.__annotations__["status"])
    assert set(DISPUTES) == set(get_args(documented))


@pytest.mark.parametrize("status", [*sorted(DISPUTES), "a_new_one"])
def test_a_dispute_is_parsed_with_its_state_amount_reason_and_deadline(
    gateway: StripeGateway, status: str
) -> None:
    resource = dispute(status=status, due_by=1_800_000_000)
    report = DisputeReport(
        reference="du_1",
        capture="pi_1",
        state=DISPUTES.get(status, DisputeState.OPEN),  # so that operators review it
        amount_minor=50_000,
        currency="THB",
        reason="fraudulent",
        respond_by=datetime(2027, 1, 15, 8, 0, tzinfo=UTC),
        is_appeal=status.startswith("appeal_"),
    )
    callback = parse(gateway, "charge.dispute.updated", resource)
    assert callback == VerifiedCallback(id="evt_1", dispute=report)


@pytest.mark.parametrize(
    "resource",
    [
        dispute(due_by=0),  # the bank does not accept a response
        dispute(due_by=None),
        dispute(evidence_details=None),
        {name: value for name, value in dispute().items() if name != "evidence_details"},
    ],
)
def test_a_dispute_that_cannot_be_contested_has_no_deadline(
    gateway: StripeGateway, resource: dict[str, Any]
) -> None:
    report = parse(gateway, "charge.dispute.created", resource).dispute
    assert report is not None
    assert (report.state, report.respond_by) == (DisputeState.OPEN, None)


@pytest.mark.parametrize(
    ("kind", "funds"),
    [
        ("created", DisputedFunds.UNTOUCHED),
        ("updated", DisputedFunds.UNTOUCHED),
        ("closed", DisputedFunds.UNTOUCHED),
        ("funds_withdrawn", DisputedFunds.WITHDRAWN),
        ("funds_reinstated", DisputedFunds.REINSTATED),
    ],
)
def test_every_dispute_event_reports_whether_funds_were_withdrawn(
    gateway: StripeGateway, kind: str, funds: DisputedFunds
) -> None:
    report = parse(gateway, f"charge.dispute.{kind}", dispute(amount=500, currency="jpy")).dispute
    assert report is not None
    assert (report.funds, report.amount_minor, report.currency) == (funds, 500, "JPY")


@pytest.mark.parametrize(
    ("kind", "resource"),
    [
        ("charge.dispute.created", dispute(payment_intent=None)),
        ("payment_intent.created", {"object": "payment_intent"}),
        ("charge.refunded", {"object": "charge", "id": 1}),
        ("payment_intent.succeeded", intent(order(), metadata={})),
        ("payment_intent.succeeded", intent(order(), metadata={"session_id": "sess_!"})),
        ("refund.updated", refund(None, payment_intent=None)),
        ("refund.updated", refund(None, status="a_new_one")),
        ("radar.early_fraud_warning.created", fraud_warning(payment_intent=None)),
        ("refund.updated", refund(uuid4(), status="a_new_one")),
    ],
)
def test_events_without_usable_references_have_no_effect(
    gateway: StripeGateway, kind: str, resource: Any
) -> None:
    assert parse(gateway, kind, resource) == VerifiedCallback(id="evt_1")


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{}",
        event("payment_intent.succeeded", {"object": "payment_intent"}),
        event("payment_intent.succeeded", refund(uuid4())),
        event("payment_intent.succeeded", intent(order(), amount_received=-1)),
        event("payment_intent.succeeded", intent(order(), amount_received=2**63)),
        event("payment_intent.succeeded", intent(order(), currency="\x00")),
        event("refund.updated", intent(order())),
        event("payment_intent.succeeded", intent(order()), id=""),
    ],
)
def test_a_signed_event_with_invalid_content_is_refused(gateway: StripeGateway, body: str) -> None:
    with pytest.raises(InvalidCallbackError):
        gateway.parse_callback(ACCOUNT, make_callback(body))


def test_a_callback_is_acknowledged(gateway: StripeGateway) -> None:
    assert gateway.acknowledge(VerifiedCallback(id="evt_1")).body == b'{"received":true}'
