"""Checks with orders that are placed twice, changed, or paid by several payments."""

from __future__ import annotations

from payintent_cli.grading.events import Order, event
from payintent_cli.grading.judging import Check, Verdict, kept, one_order, paid_once
from payintent_cli.grading.shop import Shop

_ONE_PAYMENT = "has one payment per order"


def _double_click(shop: Shop, order: Order) -> Verdict:
    del order  # the two clicks create a single order
    return one_order(*shop.click_twice())


def _changed(shop: Shop, order: Order) -> Verdict:
    changed = shop.change(order)
    if changed is None:
        good, saw = paid_once(shop, order, shop.send(event(order)))
        return good, f"does not change placed orders; {saw}"
    shop.send(event(order))
    return kept(shop, changed)


def _expired_first(shop: Shop, order: Order) -> Verdict:
    second = shop.pay_again(order)
    if second is None:
        return True, _ONE_PAYMENT
    shop.send(event(order, "payment.expired"))
    return paid_once(shop, second, shop.send(event(second)))


def _both_paid(shop: Shop, order: Order) -> Verdict:
    second = shop.pay_again(order)
    if second is None:
        return True, _ONE_PAYMENT
    shop.send(event(order))
    return paid_once(shop, second, shop.send(event(second)))


CHECKS = [
    Check(
        name="double_click",
        tried="two clicks on Buy for one cart",
        mend="create one order per cart, and use one Idempotency-Key for its payment",
        run=_double_click,
    ),
    Check(
        name="changed_order",
        tried="an order whose amount changes before it is paid; then the old payment is paid",
        mend="create a new payment for the new amount; the old payment no longer covers the order",
        run=_changed,
    ),
    Check(
        name="expired_first",
        tried="an order with two payments; the first expires while the buyer pays the second",
        mend="accept any payment for the order; an expired payment does not close the order",
        run=_expired_first,
    ),
    Check(
        name="both_paid",
        tried="an order with two payments, both paid",
        mend="deliver once, and refund the second payment",
        run=_both_paid,
    ),
]
