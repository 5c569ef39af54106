"""The webhooks that the grader sends to a shop: simulated events and their signatures."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Order:
    """An order that the shop has placed for the grader, and its newest payment."""

    id: str
    cart_id: str
    payment_id: str
    amount: str
    currency: str


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """A webhook to send, and its signatures."""

    body: bytes
    id: str
    at_s: int  # the time in webhook-timestamp
    secret: bytes | None = None  # a secret other than the shop's secret
    other_first: bool = False  # a signature with another secret precedes the valid signature


def event(order: Order, kind: str = "payment.completed", ago_s: int = 0, **changes: Any) -> Webhook:
    """Build an event that is `ago_s` seconds old, for an order's payment.

    `changes` are added to the payment's fields, and replace fields with the same names.
    """
    happened = datetime.now(timezone.utc) - timedelta(seconds=ago_s)
    at = f"{happened:%Y-%m-%dT%H:%M:%S}.{happened.microsecond // 1000:03d}Z"
    payment: dict[str, Any] = {
        "id": order.payment_id,
        "status": "PAID" if kind == "payment.completed" else kind.rpartition(".")[2].upper(),
        "currency": order.currency,
        "amount": order.amount,
        "payer_uid": "payintent-grade",
        "metadata": {"order_id": order.id},
    }
    if kind == "payment.completed":
        payment |= {"receipt_id": "grade-1", "provider": "simulator", "paid_at": at}
    if kind == "payment.expired":
        payment["expired_at"] = at
    body = {"type": kind, "timestamp": at, "data": {"payment": payment | changes}}
    return Webhook(body=json.dumps(body).encode(), id=str(uuid.uuid4()), at_s=int(time.time()))


def signed_before(webhook: Webhook, age_s: int) -> Webhook:
    """Build the same event with a timestamp that is `age_s` seconds earlier."""
    return replace(webhook, at_s=webhook.at_s - age_s)
