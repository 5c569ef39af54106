"""Payments for the shop's orders."""

import logging
from uuid import uuid5

from django.conf import settings
from django.db.models import F
from payintent_sdk import Client
from payintent_sdk.errors import PayintentError
from payintent_sdk.models import Payment

from shop.models import Order

log = logging.getLogger(__name__)
ENDED_UNPAID = {"CANCELLED", "EXPIRED", "FAILED"}
#: The buyer's money may have arrived, so these payments need manual review.
REVIEWED = {"AMOUNT_MISMATCH", "TOKEN_MISMATCH", "ONCHAIN_TIMEOUT"}
client = Client(settings.PAYINTENT_API_KEY, settings.PAYINTENT_URL)


def find_next_page(order: Order) -> str:
    """Return the URL of the order's checkout, or of the order page if there is nothing to pay.

    If the payment has ended unpaid, this function begins the next attempt. It reads the payment,
    because no event is sent when the buyer cancels, and because events can be late.
    """
    if order.status == Order.Status.PAID:
        return order.page
    if order.payment_id is not None:
        payment = client.payments.get(order.payment_id)
        if payment.status in {"PENDING", "PROCESSING"}:
            return payment.checkout_url or order.page
        if payment.status not in ENDED_UNPAID or payment.failure_reason in REVIEWED:
            return order.page
        begin_attempt(order)
    created = client.payments.create(
        amount=order.amount,
        currency=order.currency,
        payer_uid=f"guest-{order.id}",
        metadata={"order_id": str(order.id), "product": {"name": "Tides of the Chao Phraya"}},
        return_url=order.return_url,
        cancel_url=order.return_url,  # the same page, on which the buyer can try again
        idempotency_key=str(uuid5(order.id, str(order.attempt))),
    )
    Order.objects.filter(id=order.id, attempt=order.attempt).update(payment_id=created.id)
    return created.checkout_url


def begin_attempt(order: Order) -> None:
    """Begin the next attempt. Of two concurrent clicks, only one changes the order."""
    open_attempts = Order.objects.filter(id=order.id, attempt=order.attempt)
    open_attempts.exclude(status=Order.Status.PAID).update(
        attempt=F("attempt") + 1, payment_id=None, status=Order.Status.WAITING
    )
    order.refresh_from_db()


def settle(payment_id: str, status: str, amount: str, currency: str) -> None:
    """Apply the status of a payment to its order. A paid order never changes again."""
    orders = Order.objects.filter(payment_id=payment_id).exclude(status=Order.Status.PAID)
    if status == "PAID":
        orders.filter(amount=amount, currency=currency).update(
            status=Order.Status.PAID, handed_out=F("handed_out") + 1
        )
    elif status in ENDED_UNPAID:
        orders.update(status=Order.Status.UNPAID)


def refresh(order: Order) -> Payment | None:
    """Read the order's payment, if there is one, and apply its status."""
    if order.payment_id is None:
        return None
    payment = client.payments.get(order.payment_id)
    settle(payment.id, payment.status, payment.amount, payment.currency)
    order.refresh_from_db()
    return payment


def poll() -> None:
    """Refresh all open orders, because a webhook can be lost."""
    for order in Order.objects.filter(status=Order.Status.WAITING, payment_id__isnull=False):
        try:
            refresh(order)
        except PayintentError as error:  # the next poll tries again
            log.warning("%s cannot be read: %s", order.payment_id, error)
