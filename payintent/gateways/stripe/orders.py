"""The requests that create something at Stripe: a payment intent, a refund."""

from uuid import UUID

from payintent.domain import ids
from payintent.domain.gateway import (
    GatewayRefundRequest,
    GatewaySessionRef,
    GatewaySessionRequest,
)
from payintent.gateways.stripe.api import to_stripe_units

#: Methods whose money, or refusal, comes days after the buyer has left. A payment ends within a day
#: at most, so their intents would be cancelled, or be paid too late.
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
    """Build the creation request, the same each time for the same session.

    No `payment_method_types`: newer versions refuse it, and the account's own settings decide,
    except that no method is offered whose money comes after the payment's end.
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
    printable = "".join(char for char in order_id or "" if char.isprintable())
    return f"{payment}, order {printable[:ORDER_CHARS_MAX]}" if printable else payment


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
