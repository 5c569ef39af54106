"""Build the forms for payment intents and refunds, and parse Stripe's signed events."""

import hashlib
import hmac
import re
from datetime import UTC, datetime
from typing import Literal
from uuid import UUID

import msgspec
from msgspec import Struct

from payintent.core import ids
from payintent.gateways.http_client import printable_text
from payintent.gateways.port import (
    DisputedFunds,
    DisputeReport,
    DisputeState,
    FraudWarning,
    GatewayRefundRequest,
    GatewaySessionRef,
    GatewaySessionRequest,
    GatewaySessionState,
    InvalidCallbackError,
    OutsideRefund,
    RefundReport,
    SessionReport,
    UnusableCallbackError,
    VerifiedCallback,
)
from payintent.gateways.stripe.api import (
    DETAIL_CHARS_MAX,
    StripeAmount,
    StripePaymentIntent,
    StripeRefund,
    StripeText,
    StripeTime,
    from_stripe_units,
    get_refund_id,
    get_session_id,
    to_capture,
    to_failure_reason,
    to_refund_report,
    to_stripe_units,
)

_DELAYED_METHODS = """
    acss_debit au_becs_debit bacs_debit boleto customer_balance konbini multibanco nz_bank_account
    oxxo payto sepa_debit sofort us_bank_account
"""
#: Payment methods that take days to complete. Our payments expire within a day, so such an intent
#: would be cancelled or paid too late.
DELAYED_METHODS = tuple(_DELAYED_METHODS.split())
ORDER_CHARS_MAX = 100
CALLBACK_TOLERANCE_S = 300

_DISPUTE_STATES = {
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
_DISPUTE_EVENTS = {
    "charge.dispute.created": DisputedFunds.UNTOUCHED,
    "charge.dispute.updated": DisputedFunds.UNTOUCHED,
    "charge.dispute.closed": DisputedFunds.UNTOUCHED,
    "charge.dispute.funds_withdrawn": DisputedFunds.WITHDRAWN,
    "charge.dispute.funds_reinstated": DisputedFunds.REINSTATED,
}
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_REFUND_EVENTS = frozenset(
    {"refund.created", "refund.updated", "refund.failed", "charge.refund.updated"}
)
_WARNING_EVENTS = frozenset(
    {"radar.early_fraud_warning.created", "radar.early_fraud_warning.updated"}
)
_SESSION_EVENTS = frozenset(
    {"payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.canceled"}
)
#: Events to which the webhook endpoint must subscribe. `charge.refund.updated` is a legacy name for
#: `refund.updated`.
EVENTS = (_SESSION_EVENTS | _REFUND_EVENTS | _DISPUTE_EVENTS.keys() | _WARNING_EVENTS) - {
    "charge.refund.updated"
}
#: The `object` field of a thin event, which refers to its object only by id.
_THIN_EVENT = "v2.core.event"


def session_form(session: GatewaySessionRequest | GatewaySessionRef) -> dict[str, str]:
    """Build the form that creates a session's payment intent; it is the same for every attempt.

    The account's settings determine which payment methods are offered. Only delayed methods are
    excluded here. Recent API versions reject `payment_method_types`.
    """
    form = {
        "amount": str(to_stripe_units(session.amount_minor, session.currency)),
        "currency": session.currency.lower(),
        "metadata[session_id]": session_reference(session),
    }
    if session.payment_id is not None:
        form["description"] = _description(session.payment_id, session.order_id)
    for number, method in enumerate(DELAYED_METHODS):
        form[f"excluded_payment_method_types[{number}]"] = method
    return form


def _description(payment_id: UUID, order_id: str | None) -> str:
    payment = ids.format_id(ids.PAYMENT, payment_id)
    order = printable_text(order_id or "", ORDER_CHARS_MAX)
    return f"{payment}, order {order}" if order else payment


def refund_form(request: GatewayRefundRequest) -> dict[str, str]:
    return {
        "payment_intent": request.capture.reference,
        "amount": str(to_stripe_units(request.amount_minor, request.capture.currency)),
        "metadata[refund_id]": refund_reference(request),
    }


def session_reference(session: GatewaySessionRequest | GatewaySessionRef) -> str:
    return ids.format_id(ids.SESSION, session.session_id)


def refund_reference(request: GatewayRefundRequest) -> str:
    return ids.format_id(ids.REFUND, request.refund_id)


class _Evidence(Struct, frozen=True):
    due_by: StripeTime | None = None


class StripeDispute(Struct, frozen=True):
    """A dispute. If it has no payment intent, the disputed charge is not ours."""

    object: Literal["dispute"]
    id: StripeText
    status: str
    amount: StripeAmount
    currency: StripeText
    reason: str = ""
    payment_intent: StripeText | None = None
    evidence_details: _Evidence | None = None


class StripeFraudWarning(Struct, frozen=True):
    """An early fraud warning. If it has no payment intent, the charge is not ours."""

    object: Literal["radar.early_fraud_warning"]
    id: StripeText
    fraud_type: str = ""
    payment_intent: StripeText | None = None


class _Data(Struct, frozen=True):
    object: msgspec.Raw


class _Event(Struct, frozen=True):
    id: StripeText
    type: StripeText
    data: _Data


class _EventHeader(Struct, frozen=True):
    object: str = ""


def verify_signature(secret: str, header: str, body: bytes, now_s: float) -> None:
    """Verify the `Stripe-Signature` header in constant time. Raises `InvalidCallbackError`.

    While the secret is being rotated, the header contains several `v1` values. One match is enough.
    """
    if not secret.strip():  # anyone could sign with an empty key
        raise InvalidCallbackError("the account has no webhook secret")
    fields = [field.partition("=")[::2] for field in header.split(",")]
    timestamp = next((value for name, value in fields if name == "t"), "")
    if not _TIMESTAMP.fullmatch(timestamp):
        raise InvalidCallbackError("Stripe-Signature is missing or malformed")
    content = f"{timestamp}.".encode() + body
    expected_signature = hmac.new(secret.encode(), content, hashlib.sha256).hexdigest().encode()
    signatures = [value.encode(errors="replace") for name, value in fields if name == "v1"]
    if not any([hmac.compare_digest(expected_signature, value) for value in signatures]):  # noqa: C419 - constant time
        raise InvalidCallbackError("the signature does not match this account")
    if abs(now_s - int(timestamp)) > CALLBACK_TOLERANCE_S:
        raise InvalidCallbackError(f"the timestamp is not within {CALLBACK_TOLERANCE_S} s of now")


def read_event(body: bytes) -> VerifiedCallback:
    """Parse a verified event. Events that we do not handle result in an empty callback."""
    try:
        if msgspec.json.decode(body, type=_EventHeader).object == _THIN_EVENT:
            raise UnusableCallbackError(
                "a thin event does not contain the payment; choose the snapshot payload style"
            )
        return _make_callback(msgspec.json.decode(body, type=_Event))
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
        raise InvalidCallbackError("the signed body cannot be parsed") from None


def _make_callback(event: _Event) -> VerifiedCallback:
    if event.type in _REFUND_EVENTS:
        refund = msgspec.json.decode(event.data.object, type=StripeRefund)
        return _refund_callback(event.id, refund)
    if event.type in _DISPUTE_EVENTS:
        dispute = msgspec.json.decode(event.data.object, type=StripeDispute)
        return _dispute_callback(event.id, event.type, dispute)
    if event.type in _WARNING_EVENTS:
        warning = msgspec.json.decode(event.data.object, type=StripeFraudWarning)
        return _warning_callback(event.id, warning)
    if event.type in _SESSION_EVENTS:
        intent = msgspec.json.decode(event.data.object, type=StripePaymentIntent)
        return _session_callback(event.id, event.type, intent)
    return VerifiedCallback(id=event.id)


def _session_callback(
    event_id: str, event_type: str, intent: StripePaymentIntent
) -> VerifiedCallback:
    session_id = get_session_id(intent)
    if session_id is None:
        return VerifiedCallback(id=event_id)
    if event_type == "payment_intent.succeeded":
        report = SessionReport(state=GatewaySessionState.CAPTURED, capture=to_capture(intent))
    elif event_type == "payment_intent.payment_failed":
        reason = to_failure_reason(intent.last_payment_error)
        report = SessionReport(state=GatewaySessionState.ATTEMPTED, reason=reason)
    else:
        report = SessionReport(state=GatewaySessionState.CLOSED)
    return VerifiedCallback(id=event_id, session_id=session_id, report=report)


def _refund_callback(event_id: str, refund: StripeRefund) -> VerifiedCallback:
    """Report a refund. A refund without our id was made outside this service.

    A refund with an id in our format is also reported as an outside refund, because it may belong
    to another installation that shares the account.
    """
    refund_id, report = get_refund_id(refund), to_refund_report(refund)
    if report is None:
        return VerifiedCallback(id=event_id)
    return VerifiedCallback(
        id=event_id,
        refund_id=refund_id,
        refund=report if refund_id else None,
        outside_refund=_outside_refund(refund, report),
    )


def _outside_refund(refund: StripeRefund, report: RefundReport) -> OutsideRefund | None:
    if refund.payment_intent is None or refund.amount is None or refund.currency is None:
        return None
    currency = refund.currency.upper()
    return OutsideRefund(
        reference=refund.id,
        capture=refund.payment_intent,
        state=report.state,
        amount_minor=from_stripe_units(refund.amount, currency),
        currency=currency,
        detail=report.detail,
    )


def _warning_callback(event_id: str, warning: StripeFraudWarning) -> VerifiedCallback:
    if warning.payment_intent is None:
        return VerifiedCallback(id=event_id)
    report = FraudWarning(
        reference=warning.id,
        capture=warning.payment_intent,
        reason=printable_text(warning.fraud_type, DETAIL_CHARS_MAX),
    )
    return VerifiedCallback(id=event_id, fraud_warning=report)


def _dispute_callback(event_id: str, event_type: str, dispute: StripeDispute) -> VerifiedCallback:
    """Report a dispute. An unknown status counts as open, so that operators notice it."""
    if dispute.payment_intent is None:
        return VerifiedCallback(id=event_id)
    currency = dispute.currency.upper()
    due_by = dispute.evidence_details.due_by if dispute.evidence_details else None
    report = DisputeReport(
        reference=dispute.id,
        capture=dispute.payment_intent,
        state=_DISPUTE_STATES.get(dispute.status, DisputeState.OPEN),
        funds=_DISPUTE_EVENTS[event_type],
        amount_minor=from_stripe_units(dispute.amount, currency),
        currency=currency,
        reason=printable_text(dispute.reason, DETAIL_CHARS_MAX),
        respond_by=datetime.fromtimestamp(due_by, UTC) if due_by else None,
        is_appeal=dispute.status.startswith("appeal_"),
    )
    return VerifiedCallback(id=event_id, dispute=report)
