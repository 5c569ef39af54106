"""Serialize payments as JSON, for the API and for events."""

import json
from datetime import datetime
from typing import Any

import msgspec

from payintent.core import ids
from payintent.core.money import CURRENCIES, format_amount
from payintent.fraud.model import FraudDenial
from payintent.payments.model import OPEN, Payment, Session
from payintent.payments.store import PaymentSnapshot
from payintent.runtime.json_format import encode_json, format_timestamp
from payintent.webhooks.model import EventType, list_event_payload_fields

_DENIAL_MESSAGE = "this payment cannot be made"  # does not disclose the reason to the buyer


def make_payment_fields(payment: Payment, session: Session | None) -> dict[str, Any]:
    """Return the payment fields defined in spec section 2.1. Fields without a value are omitted."""
    currency = CURRENCIES[payment.currency]
    fields: dict[str, Any] = {
        "id": ids.format_id(ids.PAYMENT, payment.id),
        "checkout_id": payment.checkout_id,
        "merchant_id": payment.merchant_id,
        "status": payment.status,
        "currency": payment.currency,
        "amount": payment.amount_text,
        "payer_uid": payment.payer_uid,
        "tax_amount": session.quote.price.estimated_tax if payment.paid_at and session else "0",
        "refunded_amount": format_amount(
            payment.refunded_amount, currency.amount_decimals, trim=currency.is_crypto
        ),
        **make_shared_option_fields(payment),
        "tax_manager": payment.tax_manager,
        "created_at": format_timestamp(payment.created_at),
        "updated_at": format_timestamp(payment.updated_at),
    }
    if payment.status in OPEN:
        fields["expires_at"] = format_timestamp(payment.expires_at)
    fields.update(_return_url_fields(payment))
    fields.update(_end_fields(payment))
    if session is not None:
        fields.update(_quote_fields(payment, session))
    fields["metadata"] = msgspec.Raw(payment.metadata.encode())
    return fields


def make_shared_option_fields(payment: Payment) -> dict[str, Any]:
    """Return a create request's optional fields that the merchant and the buyer can read."""
    return {"include_pegged_assets": payment.include_pegged_assets}


def make_merchant_payment_fields(snapshot: PaymentSnapshot, checkout_base: str) -> dict[str, Any]:
    fields = make_payment_fields(snapshot.payment, snapshot.session)
    if checkout_base:
        fields["checkout_url"] = f"{checkout_base}/{snapshot.payment.checkout_id}"
    return fields


def make_event_body(
    payment: Payment, session: Session | None, kind: EventType, occurred_at: datetime
) -> str:
    """Return the event envelope defined in spec section 6.1. It is stored and sent unchanged."""
    fields = make_payment_fields(payment, session)
    data = {name: fields[name] for name in list_event_payload_fields(kind)}
    envelope = {"type": kind, "timestamp": format_timestamp(occurred_at), "data": {"payment": data}}
    return encode_json(envelope).decode()


def erase_payer(body: str, replacement: str) -> str:
    """Replace the payer in an event's body and remove the metadata."""
    # msgspec rejects unpaired surrogates, but metadata may contain them.
    envelope: dict[str, Any] = json.loads(body)
    envelope["data"]["payment"] |= {"payer_uid": replacement, "metadata": {}}
    return encode_json(envelope).decode()


def _return_url_fields(payment: Payment) -> dict[str, str]:
    urls = {"return_url": payment.return_url, "cancel_url": payment.cancel_url}
    return {name: url for name, url in urls.items() if url is not None}


def _end_fields(payment: Payment) -> dict[str, Any]:
    times = {
        "paid_at": payment.paid_at,
        "failed_at": payment.failed_at,
        "expired_at": payment.expired_at,
        "cancelled_at": payment.cancelled_at,
    }
    fields: dict[str, Any] = {
        name: format_timestamp(time) for name, time in times.items() if time is not None
    }
    if payment.receipt_id is not None:
        fields["receipt_id"] = ids.format_id(ids.RECEIPT, payment.receipt_id)
    if payment.failure_reason is not None:
        fields["failure_reason"] = payment.failure_reason
    return fields


def _quote_fields(payment: Payment, session: Session) -> dict[str, Any]:
    quote = session.quote.price
    # Quote amounts are in the quote's currency, which is included only if it differs.
    currency = {"quote_currency": quote.currency} if quote.currency != payment.currency else {}
    return {
        "payment_method_id": session.quote.payment_method_id,
        "provider": session.quote.provider_name,
        **currency,
        "fee_mode": quote.fee_mode,
        "fee_rate": quote.fee_rate,
        "fee_amount": quote.fee_amount,
        "estimated_tax": quote.estimated_tax,
        "quote_total_amount": quote.total_amount,
    }


def make_denial_fields(denial: FraudDenial) -> dict[str, Any]:
    """Return the response body for a fraud denial (spec section 7.4)."""
    return {
        "fds": {
            "outcome": "DENY",
            "code": denial.code,
            "message": _DENIAL_MESSAGE,
            "risk_level": denial.level,
            "risk_score": denial.score,
            "rule": denial.rule,
        }
    }
