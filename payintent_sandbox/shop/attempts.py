"""Create, repeat and read the payments of orders."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid5

from .goods import Product
from .orders import Order, Orders, State
from .payments import PaymentApi, PaymentApiError

_log = logging.getLogger(__name__)
_OPEN = {"PENDING", "PROCESSING"}
_ENDED_UNPAID = {"CANCELLED", "EXPIRED", "FAILED"}
#: The buyer's money may have arrived, so these payments need manual review.
_REVIEWED = {"AMOUNT_MISMATCH", "TOKEN_MISMATCH", "ONCHAIN_TIMEOUT"}
_IN_REVIEW = "We need to review your payment. Please do not pay again. We will contact you."
#: The order page's message and button label for each payment status.
_TEXTS = {
    "PENDING": ("We are waiting for your payment.", "Continue to payment"),
    "PROCESSING": ("Your payment is being processed.", "Continue to payment"),
    "FAILED": ("Your payment has failed. You have not been charged.", "Pay again"),
    "EXPIRED": ("Your payment expired before it was confirmed.", "Pay again"),
    "CANCELLED": ("Your payment was cancelled. You have not been charged.", "Pay again"),
}


class Attempts:
    """Creates payments for orders, with at most one open payment per order."""

    def __init__(self, orders: Orders, payments: PaymentApi, public_url: str) -> None:
        self._orders = orders
        self._payments = payments
        self._public_url = public_url

    async def buy(self, cart: UUID, product: Product, quantity: int) -> tuple[Order, str]:
        """Return the cart's order and the URL of the buyer's next page.

        A second click on the same page gets the same order, key and payment. Raises
        `PaymentApiError`.
        """
        order_cart = uuid5(cart, f"{product.sku} {quantity}")
        order_id = self._orders.id_for(order_cart)
        order = self._orders.find(order_id)
        if order is not None:
            return await self.pay_again(order)
        draft = Order(
            id=order_id,
            cart=order_cart,
            product=product,
            quantity=quantity,
            amount=product.amount(quantity),
            payment_id="",
            checkout_url="",
        )
        order = await self._create_payment(draft)
        return order, order.checkout_url

    async def pay_again(self, order: Order) -> tuple[Order, str]:
        """Return the order with its checkout URL, or with its page if there is nothing to pay.

        If the payment has ended unpaid, this starts the next attempt. The payment is read, because
        a cancellation on the checkout page sends no event, and because events can be late. Raises
        `PaymentApiError`.
        """
        if order.state is State.PAID:
            return order, self.page(order)
        payment = await self._payments.read(order.payment_id)
        if payment.get("status") in _OPEN:
            return order, order.checkout_url
        if payment.get("status") not in _ENDED_UNPAID or _is_reviewed(payment):
            return order, self.page(order)  # the money has arrived or may have arrived
        order = await self._create_payment(
            replace(order, attempt=order.attempt + 1, state=State.WAITING, failure_reason=None)
        )
        return order, order.checkout_url

    async def refresh(self, order: Order) -> tuple[Order, str, str]:
        """Read an order's payment, and apply it to the order.

        Return the updated order, the message of its page, and the label of the page's button.
        """
        try:
            payment = {} if order.state is State.PAID else await self._read(order)
        except PaymentApiError:
            return order, "We cannot check your payment at the moment. Please reload this page.", ""
        order = self._orders.find(order.id) or order
        if order.state is State.PAID:
            return order, "Thank you! Your books are on their way.", ""
        if _is_reviewed(payment):
            return order, _IN_REVIEW, ""
        text, label = _TEXTS.get(
            str(payment.get("status")), ("We are confirming your payment.", "")
        )
        return order, text, label

    async def _read(self, order: Order) -> dict[str, Any]:
        payment = await self._payments.read(order.payment_id)
        self._orders.settle(payment)
        return payment

    async def poll(self) -> None:
        """Refresh all open orders, because a webhook can be lost."""
        for order in self._orders.waiting():
            try:
                await self._read(order)
            except PaymentApiError as error:  # the next poll reads it again
                _log.warning("%s cannot be read: %s", order.payment_id, error)

    def page(self, order: Order) -> str:
        """Return the URL of the page to which the buyer returns."""
        return f"{self._public_url}/orders/{order.id}"

    async def _create_payment(self, order: Order) -> Order:
        """Create the payment of an attempt. Two simultaneous clicks create the same payment."""
        key = uuid5(order.cart, str(order.attempt))
        payment = await self._payments.create(key, self._request(order))
        if "checkout_url" not in payment:
            raise PaymentApiError("NO_CHECKOUT_URL", "the payment service has no checkout page")
        return self._orders.add(
            replace(order, payment_id=payment["id"], checkout_url=payment["checkout_url"])
        )

    def _request(self, order: Order) -> dict[str, Any]:
        product = order.product
        return {
            "currency": product.currency,
            "amount": order.amount,
            "payer_uid": f"guest-{order.id}",
            "return_url": self.page(order),
            "cancel_url": self.page(order),  # the page has a button to pay again
            "metadata": {
                "order_id": order.id,
                "product": {
                    "name": product.name,
                    "detail": product.detail,
                    "image": f"{self._public_url}/covers/{product.sku}.svg",
                    "category": "Books",
                    "quantity": order.quantity,
                    "vendor": "Nimbus Books",
                },
            },
        }


def _is_reviewed(payment: Mapping[str, Any]) -> bool:
    return payment.get("failure_reason") in _REVIEWED
