"""Stripe's objects with the fields that we read, and the mapping of their states to ours."""

from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Struct

from payintent.core import ids
from payintent.gateways.amount_limits import fiat_limits
from payintent.gateways.http_client import decode_json, printable_text
from payintent.gateways.minor_units import from_gateway, to_gateway
from payintent.gateways.port import (
    Capture,
    FailureReason,
    GatewayRefundState,
    GatewaySessionState,
    RefundReport,
    SessionReport,
)

#: Stripe's amounts are in minor units. Of our currencies, only JPY has no decimals in charges. TWD
#: has two decimals in charges, although payouts are in whole dollars.
DECIMALS = {"USD": 2, "THB": 2, "TWD": 2, "IDR": 2, "PHP": 2, "JPY": 0}

#: Stripe's limits for a charge. The maximum has eight digits in Stripe's units, or twelve for IDR.
#: The minimum depends on the payout currency. Stripe does not publish minimums for TWD, IDR or
#: PHP, so their values are the equivalent of 0.50 USD, with a margin.
LIMITS = fiat_limits(
    USD=("0.50", "999999.99"),
    THB=("10.00", "999999.99"),
    JPY=("50", "99999999"),
    TWD=("20.00", "999999.99"),
    IDR=("10000.00", "9999999999.99"),
    PHP=("35.00", "999999.99"),
)

_STATES = {
    # Also the status after a decline. Declines are reported by callbacks.
    "requires_payment_method": GatewaySessionState.OPEN,
    "requires_confirmation": GatewaySessionState.OPEN,
    # The buyer must authenticate, but may have left. No money has moved yet, and Stripe cancels the
    # intent atomically, so the session can be closed to select another method.
    "requires_action": GatewaySessionState.OPEN,
    "processing": GatewaySessionState.AUTHORISING,
    # Not expected, because we do not request manual capture. The money is reserved.
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

#: The documented decline codes that reflect a decision by the bank or by Stripe.
_DECLINE_CODES = """
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
#: Error codes of failed attempts that have no decline code.
_ERROR_CODES = """
    authentication_failure bank_account_declined card_declined debit_not_authorized
    expired_payment_method payment_intent_authentication_failure
    payment_method_customer_decline payment_method_provider_decline
"""
_UNDECIDED_CODES = """
    issuer_not_available payment_intent_payment_attempt_expired
    payment_intent_payment_attempt_failed payment_method_provider_timeout processing_error
    reenter_transaction try_again_later
"""
FAILURES: dict[str, FailureReason] = {
    code: reason
    for codes, reason in (
        (_DECLINE_CODES, FailureReason.DECLINED),
        (_ERROR_CODES, FailureReason.DECLINED),
        (_UNDECIDED_CODES, FailureReason.UNKNOWN),
    )
    for code in codes.split()
}

DETAIL_CHARS_MAX = 200
# Restricted to values that the database can store: text without NUL, and 64-bit integers.
StripeText = Annotated[str, Meta(pattern=r"^[!-~]{1,255}\Z")]
StripeAmount = Annotated[int, Meta(ge=0, le=2**63 - 1)]
StripeTime = Annotated[int, Meta(ge=0, le=4_102_444_800)]  # the year 2100


class StripeErrorBody(Struct, frozen=True):
    """Stripe's error object, without the message, which may quote the request."""

    type: str = ""
    code: str | None = None
    decline_code: str | None = None
    param: str | None = None


class _ErrorResponse(Struct, frozen=True):
    error: StripeErrorBody


class StripePaymentIntent(Struct, frozen=True):
    """A payment intent. Amounts are in Stripe's units."""

    object: Literal["payment_intent"]
    id: StripeText
    status: str
    amount: StripeAmount
    currency: StripeText
    metadata: dict[str, str] = {}
    client_secret: str | None = None
    amount_received: StripeAmount | None = None
    last_payment_error: StripeErrorBody | None = None


class StripeSource(Struct, frozen=True, kw_only=True):
    """The common fields of charges, refunds, disputes and payouts."""

    id: StripeText
    currency: StripeText | None = None
    payment_intent: StripeText | None = None
    metadata: dict[str, str] | None = None


class StripeRefund(StripeSource, frozen=True, kw_only=True):
    object: Literal["refund"]
    status: str | None
    amount: StripeAmount | None = None
    failure_reason: str | None = None


class StripeRefundPage(Struct, frozen=True):
    object: Literal["list"]
    data: list[StripeRefund]
    has_more: bool


def to_stripe_units(amount_minor: int, currency: str) -> int:
    decimals = DECIMALS.get(currency)
    return amount_minor if decimals is None else to_gateway(amount_minor, currency, decimals)


def from_stripe_units(units: int, currency: str) -> int:
    """Convert to our minor units. Amounts in unsupported currencies are returned unchanged."""
    decimals = DECIMALS.get(currency)
    return units if decimals is None else from_gateway(units, currency, decimals)


def parse_error_body(body: bytes) -> StripeErrorBody | None:
    """Parse an error response. Returns None if the response does not come from Stripe."""
    response = decode_json(body, _ErrorResponse)
    return response.error if response and response.error.type else None


def get_session_id(intent: StripePaymentIntent) -> UUID | None:
    """Return our session id from an intent's metadata, or None if the intent is not ours."""
    return ids.parse_id(ids.SESSION, intent.metadata.get("session_id", ""))


def get_refund_id(refund: StripeSource) -> UUID | None:
    """Return our refund id from a refund's metadata, or None if the refund is not ours."""
    return ids.parse_id(ids.REFUND, (refund.metadata or {}).get("refund_id", ""))


def to_session_report(intent: StripePaymentIntent) -> SessionReport | None:
    """Convert a payment intent to a report. Returns None if its status is unknown."""
    state = _STATES.get(intent.status)
    if state is None:
        return None
    return SessionReport(
        state=state, capture=to_capture(intent) if intent.status == "succeeded" else None
    )


def to_refund_report(refund: StripeRefund) -> RefundReport | None:
    """Convert a refund to a report. Returns None if its status is unknown."""
    state = _REFUND_STATES.get(refund.status or "")
    if state is None:
        return None
    detail = printable_text(refund.failure_reason or "", DETAIL_CHARS_MAX)
    return RefundReport(state=state, reference=refund.id, detail=detail)


def to_failure_reason(error: StripeErrorBody | None) -> FailureReason:
    """Convert the error of a failed attempt to a reason, using its most specific known code."""
    codes = (error.decline_code, error.code) if error else ()
    return next((FAILURES[code] for code in codes if code in FAILURES), FailureReason.UNKNOWN)


def to_capture(intent: StripePaymentIntent) -> Capture:
    # The intent's id identifies the capture, because an intent is captured once and refunds accept
    # its id. The charge cannot be used, because it is a string, an object or a list, depending on
    # the API version, and callbacks use the endpoint's version instead of ours.
    currency = intent.currency.upper()
    units = intent.amount if intent.amount_received is None else intent.amount_received
    return Capture(
        reference=intent.id, amount_minor=from_stripe_units(units, currency), currency=currency
    )
