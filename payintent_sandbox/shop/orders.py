"""The shop's orders and received webhooks, in memory; a real shop has a database."""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from itertools import count
from typing import Any
from uuid import UUID

from .goods import Product

ORDERS_MAX = 1_000
WEBHOOKS_MAX = 10_000
_FIRST_NUMBER = 1001
_HEADERS_KEPT = ("webhook-id", "webhook-timestamp", "webhook-signature", "content-type")


class State(StrEnum):
    """The status of an order. A paid order never changes; any other order can still be paid."""

    WAITING = "waiting"
    PAID = "paid"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


#: The state of an order for each status of its payment.
_STATES = {
    "PAID": State.PAID,
    "FAILED": State.FAILED,
    "EXPIRED": State.EXPIRED,
    "CANCELLED": State.CANCELLED,
}
_STATUSES = {
    "payment.completed": "PAID",
    "payment.failed": "FAILED",
    "payment.expired": "EXPIRED",
    "payment.cancelled": "CANCELLED",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order, with the payment of its latest attempt."""

    id: str
    cart: UUID
    product: Product
    quantity: int
    amount: str
    payment_id: str
    checkout_url: str
    attempt: int = 1
    state: State = State.WAITING
    receipt_id: str | None = None
    failure_reason: str | None = None
    handed_out: int = 0  # number of deliveries; checked by the shop grader

    def is_paid_by(self, payment: Mapping[str, Any]) -> bool:
        """Return whether a payment has the order's amount and currency."""
        try:
            amount = Decimal(str(payment.get("amount")))
        except InvalidOperation:
            return False
        return (amount, payment.get("currency")) == (Decimal(self.amount), self.product.currency)

    def view(self) -> dict[str, Any]:
        """Return the order's JSON, without the checkout URL, which only the buyer may see."""
        return {
            "order_id": self.id,
            "product": self.product.name,
            "quantity": self.quantity,
            "amount": self.amount,
            "currency": self.product.currency,
            "payment_id": self.payment_id,
            "status": self.state.value,
            "receipt_id": self.receipt_id,
            "failure_reason": self.failure_reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A verified webhook as it was received; `body` is the signed text."""

    received_at: datetime
    headers: dict[str, str]
    body: str
    type: str
    payment: dict[str, Any]
    payment_id: str
    duplicate: bool

    def view(self) -> dict[str, Any]:
        """Return the delivery's JSON."""
        return {
            "received_at": self.received_at.isoformat(timespec="milliseconds"),
            "headers": self.headers,
            "body": self.body,
            "duplicate": self.duplicate,
        }


class Orders:
    """The latest orders and webhooks; older entries are dropped."""

    def __init__(self) -> None:
        self._numbers = count(_FIRST_NUMBER)
        self._orders: dict[str, Order] = {}
        self._by_cart: dict[UUID, str] = {}
        self._by_payment: dict[str, str] = {}
        self._deliveries: deque[Delivery] = deque(maxlen=WEBHOOKS_MAX)
        self._webhook_ids: dict[str, None] = {}  # in order of arrival

    def id_for(self, cart: UUID) -> str:
        """Return the id of a cart's order."""
        order_id = self._by_cart.pop(cart, None) or f"A-{next(self._numbers)}"
        if len(self._by_cart) >= ORDERS_MAX:
            del self._by_cart[next(iter(self._by_cart))]
        self._by_cart[cart] = order_id
        return order_id

    def add(self, order: Order) -> Order:
        """Store an order with the payment of an attempt; return the existing attempt, if any."""
        existing = self._orders.get(order.id)
        if existing is not None and existing.attempt >= order.attempt:
            return existing
        if existing is not None:
            self._by_payment.pop(existing.payment_id, None)
        elif len(self._orders) >= ORDERS_MAX:
            oldest = self._orders.pop(next(iter(self._orders)))
            self._by_payment.pop(oldest.payment_id, None)
        self._orders[order.id] = order
        self._by_payment[order.payment_id] = order.id
        # A payment's webhook can arrive before the response to the create request.
        for early in self.deliveries(order.payment_id):
            self._apply(early)
        return self._orders[order.id]

    def find(self, order_id: str) -> Order | None:
        """Find an order by its number."""
        return self._orders.get(order_id)

    def waiting(self) -> list[Order]:
        """Return the orders whose payment is still open, as far as the shop knows."""
        return [order for order in self._orders.values() if order.state is State.WAITING]

    def newest(self) -> list[Order]:
        """Return the orders, newest first."""
        return list(reversed(self._orders.values()))

    def deliveries(self, payment_id: str | None) -> list[Delivery]:
        """Return the received webhooks for a payment, or all webhooks, oldest first."""
        return [
            delivery
            for delivery in self._deliveries
            if payment_id is None or delivery.payment_id == payment_id
        ]

    def receive(self, headers: Mapping[str, str], body: bytes) -> None:
        """Store a verified webhook.

        A duplicate does not change an order. Raises ValueError if the body is malformed.
        """
        kind, payment = _read(body)
        webhook_id = headers["webhook-id"]
        delivery = Delivery(
            received_at=datetime.now(UTC),
            headers={name: headers[name] for name in _HEADERS_KEPT if name in headers},
            body=body.decode(),
            type=kind,
            payment=payment,
            payment_id=str(payment.get("id")),
            duplicate=webhook_id in self._webhook_ids,
        )
        self._deliveries.append(delivery)
        if delivery.duplicate:
            return
        if len(self._webhook_ids) >= WEBHOOKS_MAX:
            del self._webhook_ids[next(iter(self._webhook_ids))]
        self._webhook_ids[webhook_id] = None
        self._apply(delivery)

    def _apply(self, delivery: Delivery) -> None:
        """Apply an event to its order; unknown types are ignored."""
        status = _STATUSES.get(delivery.type)
        if status is not None:
            self.settle({**delivery.payment, "status": status})

    def settle(self, payment: Mapping[str, Any]) -> None:
        """Apply the status of a payment to its order, unless the order has ended."""
        order = self._orders.get(self._by_payment.get(str(payment.get("id")), ""))
        state = _STATES.get(str(payment.get("status")))
        if order is None or state is None or order.state is not State.WAITING:
            return
        if state is State.PAID and not order.is_paid_by(payment):
            return  # needs manual review
        self._orders[order.id] = replace(
            order,
            state=state,
            receipt_id=payment.get("receipt_id"),
            failure_reason=payment.get("failure_reason"),
            handed_out=order.handed_out + (state is State.PAID),
        )


def _read(body: bytes) -> tuple[str, dict[str, Any]]:
    try:
        event = json.loads(body)
        kind, payment = str(event["type"]), dict[str, Any](event["data"]["payment"])
    except (KeyError, TypeError) as error:
        raise ValueError("the body is not an event") from error
    return kind, payment
