"""Stripe's objects and signatures: the fields that are read, and how states are mapped."""

import hashlib
import hmac
import re
from datetime import UTC, datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from payintent.domain import ids
from payintent.domain.gateway import (
    Capture,
    DisputedFunds,
    DisputeReport,
    DisputeState,
    GatewayRefundState,
    GatewaySessionState,
    InvalidCallbackError,
    RefundReport,
    SessionReport,
    VerifiedCallback,
)
from payintent.domain.payment import FailureReason
from payintent.gateways.minor_units import from_gateway, to_gateway

#: Stripe counts in a currency's minor unit. Of ours only the yen has none in charges; TWD is
#: charged with two decimals, though it is paid out to the account's owner in whole dollars.
DECIMALS = {"USD": 2, "THB": 2, "TWD": 2, "IDR": 2, "PHP": 2, "JPY": 0}

_STATES = {
    # After a decline too: callbacks count those.
    "requires_payment_method": GatewaySessionState.OPEN,
    "requires_confirmation": GatewaySessionState.OPEN,
    # The bank asks the buyer to authenticate, and the buyer may have left for good. No money moves
    # before the answer, and Stripe cancels it at once or not at all: so it may be closed, and
    # another method selected.
    "requires_action": GatewaySessionState.OPEN,
    "processing": GatewaySessionState.AUTHORISING,
    # We never request that; the money is reserved.
    "requires_capture": GatewaySessionState.AUTHORISING,
    "succeeded": GatewaySessionState.CAPTURED,
    "canceled": GatewaySessionState.CLOSED,
}
_REFUND_STATES = {
    "pending": GatewayRefundState.PENDING,
    "requires_action": GatewayRefundState.PENDING,
    "succeeded": GatewayRefundState.DONE,
    "failed": GatewayRefundState.DECLINED,
    "canceled": GatewayRefundState.DECLINED,
}

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

#: Decline codes as documented, except those where neither bank nor Stripe has decided.
_DECLINES = """
    approve_with_id authentication_not_handled authentication_required call_issuer
    card_not_supported card_velocity_exceeded currency_not_supported do_not_honor
    do_not_try_again duplicate_transaction expired_card fraudulent generic_decline
    incorrect_address incorrect_cvc incorrect_number incorrect_pin incorrect_zip
    insufficient_funds invalid_account invalid_amount invalid_cvc invalid_expiry_month
    invalid_expiry_year invalid_number invalid_pin lost_card merchant_blacklist
    mobile_device_authentication_required new_account_information_available no_action_taken
    not_permitted offline_pin_required online_or_offline_pin_required pickup_card
    pin_try_exceeded restricted_card revocation_of_all_authorizations
    revocation_of_authorization security_violation service_not_allowed stolen_card
    stop_payment_order testmode_decline transaction_not_allowed withdrawal_count_limit_exceeded
"""
#: Error codes of an attempt without a decline code.
_ERRORS = """
    authentication_failure bank_account_declined card_declined debit_not_authorized
    expired_payment_method payment_intent_authentication_failure
    payment_method_customer_decline payment_method_provider_decline
"""
_UNDECIDED = """
    issuer_not_available payment_intent_payment_attempt_expired
    payment_intent_payment_attempt_failed payment_method_provider_timeout processing_error
    reenter_transaction try_again_later
"""
FAILURES: dict[str, FailureReason] = {
    word: reason
    for words, reason in (
        (_DECLINES, FailureReason.DECLINED),
        (_ERRORS, FailureReason.DECLINED),
        (_UNDECIDED, FailureReason.UNKNOWN),
    )
    for word in words.split()
}

CALLBACK_TOLERANCE_S = 300
DETAIL_CHARS_MAX = 200
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_REFUND_EVENTS = frozenset(
    {"refund.created", "refund.updated", "refund.failed", "charge.refund.updated"}
)

# What the database can store: no NUL, and whole numbers of 64 bits.
_Text = Annotated[str, Meta(pattern=r"^[!-~]{1,255}\Z")]
_Amount = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Time = Annotated[int, Meta(ge=0, le=4_102_444_800)]  # the year 2100


class StripeErrorBody(Struct, frozen=True):
    """Stripe's error object; its message is not read, because it may quote what was sent."""

    type: str = ""
    code: str | None = None
    decline_code: str | None = None
    param: str | None = None


class _Refusal(Struct, frozen=True):
    error: StripeErrorBody


class StripePaymentIntent(Struct, frozen=True):
    """Stripe's payment intent, with the fields that we read; amounts in Stripe's units."""

    object: Literal["payment_intent"]
    id: _Text
    status: str
    amount: _Amount
    currency: _Text
    metadata: dict[str, str] = {}
    client_secret: str | None = None
    amount_received: _Amount | None = None
    last_payment_error: StripeErrorBody | None = None


class StripeRefund(Struct, frozen=True):
    """Stripe's refund, with the fields that we read; amounts in Stripe's units."""

    object: Literal["refund"]
    id: _Text
    status: str | None
    metadata: dict[str, str] | None = None
    failure_reason: str | None = None


class StripeRefundPage(Struct, frozen=True):
    """One page of refunds, the newest first."""

    object: Literal["list"]
    data: list[StripeRefund]
    has_more: bool


class _Evidence(Struct, frozen=True):
    due_by: _Time | None = None


class StripeDispute(Struct, frozen=True):
    """Stripe's dispute; without a payment intent it is about a charge that is none of ours."""

    object: Literal["dispute"]
    id: _Text
    status: str
    amount: _Amount
    currency: _Text
    reason: str = ""
    payment_intent: _Text | None = None
    evidence_details: _Evidence | None = None


class _Data(Struct, frozen=True):
    object: msgspec.Raw


class _Event(Struct, frozen=True):
    id: _Text
    type: _Text
    data: _Data


def to_stripe_units(amount_minor: int, currency: str) -> int:
    """Convert our minor units to Stripe's units."""
    decimals = DECIMALS.get(currency)
    return amount_minor if decimals is None else to_gateway(amount_minor, currency, decimals)


def from_stripe_units(units: int, currency: str) -> int:
    """Convert Stripe's units to our minor units; currencies we never charge stay as they are."""
    decimals = DECIMALS.get(currency)
    return units if decimals is None else from_gateway(units, currency, decimals)


def read_error_body(body: bytes) -> StripeErrorBody | None:
    """Parse an error object; None where the answer is not Stripe's."""
    try:
        trouble = msgspec.json.decode(body, type=_Refusal).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return trouble if trouble.type else None


def session_id_of(intent: StripePaymentIntent) -> UUID | None:
    """Return the session of an intent; None where it is not ours."""
    return ids.parse_id(ids.SESSION, intent.metadata.get("session_id", ""))


def refund_id_of(refund: StripeRefund) -> UUID | None:
    """Return our id of a refund; None where it is not ours."""
    return ids.parse_id(ids.REFUND, (refund.metadata or {}).get("refund_id", ""))


def session_report(intent: StripePaymentIntent) -> SessionReport | None:
    """Map a payment intent to a report; None where its status is unknown."""
    state = _STATES.get(intent.status)
    if state is None:
        return None
    return SessionReport(
        state=state, capture=_capture(intent) if intent.status == "succeeded" else None
    )


def refund_report(refund: StripeRefund) -> RefundReport | None:
    """Map a refund to a report; None where its status is unknown."""
    state = _REFUND_STATES.get(refund.status or "")
    if state is None:
        return None
    return RefundReport(
        state=state, reference=refund.id, detail=_printable(refund.failure_reason or "")
    )


def failure_reason(trouble: StripeErrorBody | None) -> FailureReason:
    """Map a failed attempt to a reason, by the most specific code that is listed."""
    codes = (trouble.decline_code, trouble.code) if trouble else ()
    return next((FAILURES[word] for word in codes if word in FAILURES), FailureReason.UNKNOWN)


def verify_signature(secret: str, header: str, body: bytes, now_s: float) -> None:
    """Verify `Stripe-Signature` over the raw body, in constant time. Raises `InvalidCallbackError`.

    There are several `v1` while a secret is being replaced; one match is enough.
    """
    if not secret.strip():  # with an empty key anyone could sign
        raise InvalidCallbackError("the account has no webhook secret")
    parts = [part.partition("=")[::2] for part in header.split(",")]
    timestamp = next((value for name, value in parts if name == "t"), "")
    if not _TIMESTAMP.fullmatch(timestamp):
        raise InvalidCallbackError("Stripe-Signature is missing or malformed")
    content = f"{timestamp}.".encode() + body
    expected = hmac.new(secret.encode(), content, hashlib.sha256).hexdigest().encode()
    given = [value.encode(errors="replace") for name, value in parts if name == "v1"]
    if not any([hmac.compare_digest(expected, candidate) for candidate in given]):  # noqa: C419 - all of them
        raise InvalidCallbackError("the signature is not this account's")
    if abs(now_s - int(timestamp)) > CALLBACK_TOLERANCE_S:
        raise InvalidCallbackError("the timestamp is too far from now")


def read_event(body: bytes) -> VerifiedCallback:
    """Read a verified event; one of another type or program is about nothing of ours."""
    try:
        event = msgspec.json.decode(body, type=_Event)
        if event.type in _REFUND_EVENTS:
            return _about_refund(
                event.id, msgspec.json.decode(event.data.object, type=StripeRefund)
            )
        if event.type in _DISPUTE_EVENTS:
            dispute = msgspec.json.decode(event.data.object, type=StripeDispute)
            return _about_dispute(event.id, event.type, dispute)
        if event.type in _SESSION_EVENTS:
            intent = msgspec.json.decode(event.data.object, type=StripePaymentIntent)
            return _about_session(event.id, event.type, intent)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
        raise InvalidCallbackError("the signed body cannot be read") from None
    return VerifiedCallback(id=event.id)


def _about_session(event_id: str, kind: str, intent: StripePaymentIntent) -> VerifiedCallback:
    session_id = session_id_of(intent)
    if session_id is None:
        return VerifiedCallback(id=event_id)
    return VerifiedCallback(
        id=event_id, session_id=session_id, report=_SESSION_EVENTS[kind](intent)
    )


def _about_refund(event_id: str, refund: StripeRefund) -> VerifiedCallback:
    refund_id, report = refund_id_of(refund), refund_report(refund)
    if refund_id is None or report is None:
        return VerifiedCallback(id=event_id)
    return VerifiedCallback(id=event_id, refund_id=refund_id, refund=report)


def _about_dispute(event_id: str, kind: str, dispute: StripeDispute) -> VerifiedCallback:
    """Report a dispute; an unlisted status counts as open, so that an operator sees it."""
    if dispute.payment_intent is None:
        return VerifiedCallback(id=event_id)
    currency = dispute.currency.upper()
    due_by = dispute.evidence_details.due_by if dispute.evidence_details else None
    report = DisputeReport(
        reference=dispute.id,
        capture=dispute.payment_intent,
        state=_DISPUTE_STATES.get(dispute.status, DisputeState.OPEN),
        funds=_DISPUTE_EVENTS[kind],
        amount_minor=from_stripe_units(dispute.amount, currency),
        currency=currency,
        reason=_printable(dispute.reason),
        respond_by=datetime.fromtimestamp(due_by, UTC) if due_by else None,
        appeal=dispute.status.startswith("appeal_"),
    )
    return VerifiedCallback(id=event_id, dispute=report)


def _printable(text: str) -> str:
    return "".join(char for char in text if char.isprintable())[:DETAIL_CHARS_MAX]


def _succeeded(intent: StripePaymentIntent) -> SessionReport:
    return SessionReport(state=GatewaySessionState.CAPTURED, capture=_capture(intent))


def _failed(intent: StripePaymentIntent) -> SessionReport:
    return SessionReport(
        state=GatewaySessionState.ATTEMPTED, reason=failure_reason(intent.last_payment_error)
    )


def _canceled(_: StripePaymentIntent) -> SessionReport:
    return SessionReport(state=GatewaySessionState.CLOSED)


_SESSION_EVENTS = {
    "payment_intent.succeeded": _succeeded,
    "payment_intent.payment_failed": _failed,
    "payment_intent.canceled": _canceled,
}
#: What a webhook endpoint is to send; `charge.refund.updated` is the old name of `refund.updated`.
EVENTS = frozenset({*_SESSION_EVENTS, *_REFUND_EVENTS, *_DISPUTE_EVENTS}) - {
    "charge.refund.updated"
}


def _capture(intent: StripePaymentIntent) -> Capture:
    # The intent's own id identifies the capture: an intent captures once, refunds accept it, and it
    # is the same in every version of the API. The charge is a text, an object or in a list,
    # depending on the version, and a callback comes in the endpoint's version, not in ours.
    currency = intent.currency.upper()
    units = intent.amount if intent.amount_received is None else intent.amount_received
    return Capture(
        reference=intent.id, amount_minor=from_stripe_units(units, currency), currency=currency
    )
