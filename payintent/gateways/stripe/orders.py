"""The requests that create payment intents and refunds at Stripe."""

from uuid import UUID

from payintent.domain import ids
from payintent.domain.gateway import (
    GatewayRefundRequest,
    GatewaySessionRef,
    GatewaySessionRequest,
)
from payintent.gateways.http_client import printable_text
from payintent.gateways.stripe.api import to_stripe_units

#: Payment methods with a result after days. Payments end within a day, so their intents would be
#: cancelled, or be paid too late.
DELAYED_METHODS = (
    "acss_debit",
    "au_becs_debit",
    "bacs_debit",
    "boleto",
    "customer_balance",
    "konbini",
    "multibanco",
    "nz_bank_account",
    "oxxo",
    "payto",
    "sepa_debit",
    "sofort",
    "us_bank_account",
)
ORDER_CHARS_MAX = 100


def session_order(session: GatewaySessionRequest | GatewaySessionRef) -> dict[str, str]:
    """Build the creation request, always identical for the same session.

    The settings of the account decide which methods are offered, except the delayed methods. Newer
    API versions reject `payment_method_types`.
    """
    order = {
        "amount": str(to_stripe_units(session.amount_minor, session.currency)),
        "currency": session.currency.lower(),
        "metadata[session_id]": session_wire_id(session),
    }
    if session.payment_id is not None:
        order["description"] = _description(session.payment_id, session.order_id)
    for number, method in enumerate(DELAYED_METHODS):
        order[f"excluded_payment_method_types[{number}]"] = method
    return order


def _description(payment_id: UUID, order_id: str | None) -> str:
    payment = ids.format_id(ids.PAYMENT, payment_id)
    order = printable_text(order_id or "", ORDER_CHARS_MAX)
    return f"{payment}, order {order}" if order else payment


def refund_order(request: GatewayRefundRequest) -> dict[str, str]:
    return {
        "payment_intent": request.capture.reference,
        "amount": str(to_stripe_units(request.amount_minor, request.capture.currency)),
        "metadata[refund_id]": refund_wire_id(request),
    }


def session_wire_id(session: GatewaySessionRequest | GatewaySessionRef) -> str:
    return ids.format_id(ids.SESSION, session.session_id)


def refund_wire_id(request: GatewayRefundRequest) -> str:
    return ids.format_id(ids.REFUND, request.refund_id)
