"""Checks, and the rules for a correct shop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from payintent_cli.grading.events import Order
from payintent_cli.grading.shop import Shop

ACCEPTED = range(200, 300)

#: Whether the shop passed, and a description of what it did.
Verdict = tuple[bool, str]


@dataclass(frozen=True, kw_only=True)
class Check:
    """A test for one fault, with an order of its own."""

    name: str
    tried: str
    mend: str
    run: Callable[[Shop, Order], Verdict]


def said(status: int | None) -> str:
    """Describe a response."""
    return "no response" if status is None else f"responded {status}"


def paid_once(shop: Shop, order: Order, status: int | None) -> Verdict:
    """Return whether the shop responded with 2xx and fulfilled the order once."""
    now = shop.look(order, expect_paid=True)
    good = status in ACCEPTED and (now.status, now.handed_out) == ("paid", 1)
    return good, f"{said(status)}; {now}"


def all_paid_once(shop: Shop, orders: Sequence[Order], statuses: Sequence[int | None]) -> Verdict:
    """Return whether `paid_once` holds for each order."""
    verdicts = [paid_once(shop, *each) for each in zip(orders, statuses, strict=True)]
    bad = [saw for good, saw in verdicts if not good]
    count = "both" if len(orders) == 2 else f"all {len(orders)}"  # noqa: PLR2004
    return not bad, bad[0] if bad else f"{said(statuses[0])}; {count} paid, each delivered once"


def one_order(first: Order, second: Order) -> Verdict:
    """Return whether two clicks created a single order with a single payment."""
    if (first.id, first.payment_id) == (second.id, second.payment_id):
        return True, "one order with one payment"
    orders, payments = ({first.id, second.id}, {first.payment_id, second.payment_id})
    return False, f"orders: {len(orders)}, payments: {len(payments)}"


def refused(shop: Shop, order: Order, status: int | None) -> Verdict:
    """Return whether the shop did not respond with 2xx and did not deliver."""
    now = shop.look(order, expect_paid=False)
    return status not in ACCEPTED and now.handed_out == 0, f"{said(status)}; {now}"


def kept(shop: Shop, order: Order) -> Verdict:
    """Return whether the shop did not fulfil the order. Its response does not matter."""
    now = shop.look(order, expect_paid=False)
    return now.handed_out == 0, str(now)
