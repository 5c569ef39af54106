"""Stripe's objects: the fields that are read, and how states are mapped."""

from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Struct

from payintent.domain import ids
from payintent.domain.amount_limits import fiat_limits
from payintent.domain.gateway import (
    Capture,
    GatewayRefundState,
    GatewaySessionState,
    RefundReport,
    SessionReport,
)
from payintent.domain.payment import FailureReason
from payintent.gateways.http_client import decode_json
from payintent.gateways.minor_units import from_gateway, to_gateway

#: Stripe counts in a currency's minor unit. Of ours only the yen has none in charges; TWD is
#: charged with two decimals, though it is paid out to the account's owner in whole dollars.
DECIMALS = {"USD": 2, "THB": 2, "TWD": 2, "IDR": 2, "PHP": 2, "JPY": 0}

#: Stripe's published limits of a charge: eight digits in its units, twelve of IDR. A minimum is
#: that of the currency of the account's payouts. For TWD, IDR and PHP none is published, so these
#: are the 0.50 USD that Stripe converts, with a margin.
LIMITS = fiat_limits(
    USD=("0.50", "999999.99"),
    THB=("10.00", "999999.99"),
    JPY=("50", "99999999"),
    TWD=("20.00", "999999.99"),
    IDR=("10000.00", "9999999999.99"),
    PHP=("35.00", "999999.99"),
)

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

DETAIL_CHARS_MAX = 200
# What the database can store: no NUL, and whole numbers of 64 bits.
StripeText = Annotated[str, Meta(pattern=r"^[!-~]{1,255}\Z")]
StripeAmount = Annotated[int, Meta(ge=0, le=2**63 - 1)]
StripeTime = Annotated[int, Meta(ge=0, le=4_102_444_800)]  # the year 2100


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
    id: StripeText
    status: str
    amount: StripeAmount
    currency: StripeText
    metadata: dict[str, str] = {}
    client_secret: str | None = None
    amount_received: StripeAmount | None = None
    last_payment_error: StripeErrorBody | None = None


class StripeRefund(Struct, frozen=True):
    """Stripe's refund, with the fields that we read; amounts in Stripe's units."""

    object: Literal["refund"]
    id: StripeText
    status: str | None
    amount: StripeAmount | None = None
    currency: StripeText | None = None
    payment_intent: StripeText | None = None
    metadata: dict[str, str] | None = None
    failure_reason: str | None = None


class StripeRefundPage(Struct, frozen=True):
    object: Literal["list"]
    data: list[StripeRefund]
    has_more: bool


def to_stripe_units(amount_minor: int, currency: str) -> int:
    decimals = DECIMALS.get(currency)
    return amount_minor if decimals is None else to_gateway(amount_minor, currency, decimals)


def from_stripe_units(units: int, currency: str) -> int:
    """Convert Stripe's units to our minor units; currencies we never charge stay as they are."""
    decimals = DECIMALS.get(currency)
    return units if decimals is None else from_gateway(units, currency, decimals)


def read_error_body(body: bytes) -> StripeErrorBody | None:
    """Parse an error object; None where the answer is not Stripe's."""
    refusal = decode_json(body, _Refusal)
    return refusal.error if refusal and refusal.error.type else None


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
        state=state, capture=capture_of(intent) if intent.status == "succeeded" else None
    )


def refund_report(refund: StripeRefund) -> RefundReport | None:
    """Map a refund to a report; None where its status is unknown."""
    state = _REFUND_STATES.get(refund.status or "")
    if state is None:
        return None
    return RefundReport(
        state=state, reference=refund.id, detail=printable_text(refund.failure_reason or "")
    )


def failure_reason(trouble: StripeErrorBody | None) -> FailureReason:
    """Map a failed attempt to a reason, by the most specific code that is listed."""
    codes = (trouble.decline_code, trouble.code) if trouble else ()
    return next((FAILURES[word] for word in codes if word in FAILURES), FailureReason.UNKNOWN)


def printable_text(text: str) -> str:
    """Return a text of Stripe's without control characters, cut."""
    return "".join(char for char in text if char.isprintable())[:DETAIL_CHARS_MAX]


def capture_of(intent: StripePaymentIntent) -> Capture:
    # The intent's own id identifies the capture: an intent captures once, refunds accept it, and it
    # is the same in every version of the API. The charge is a text, an object or in a list,
    # depending on the version, and a callback comes in the endpoint's version, not in ours.
    currency = intent.currency.upper()
    units = intent.amount if intent.amount_received is None else intent.amount_received
    return Capture(
        reference=intent.id, amount_minor=from_stripe_units(units, currency), currency=currency
    )
