"""Checks with returning buyers, a lost webhook, and an order that is already paid."""

from __future__ import annotations

from payintent_cli.grading.events import Order
from payintent_cli.grading.judging import Verdict, kept, paid_once, said
from payintent_cli.grading.service import Service
from payintent_cli.grading.shop import Shop

OPEN = ("PENDING", "PROCESSING")
_NO_RETURN_URL = "creates payments without a return_url"
_SERVER_ERROR = 500


def forged_return(service: Service, shop: Shop, order: Order) -> Verdict:
    """Return without having paid, with a query that claims otherwise."""
    return _return_unpaid(service, shop, order, order.payment_id)


def other_return(service: Service, shop: Shop, order: Order) -> Verdict:
    """Return without having paid, with the id of a different payment that is paid."""
    other = shop.place_order()
    service.pay(other)
    return _return_unpaid(service, shop, order, other.payment_id)


def lost_webhook(service: Service, shop: Shop, order: Order) -> Verdict:
    """Pay, return, and let the shop poll before the webhook arrives."""
    service.pay(order)
    for url in service.return_urls(order):
        shop.visit(url, order.payment_id)
    shop.poll()
    now = shop.look(order, expect_paid=True)
    if now.handed_out != 1:
        return False, f"without the webhook: {now}"
    return paid_once(shop, order, shop.send(service.event(order)))


def paid_again(service: Service, shop: Shop, order: Order) -> Verdict:
    """Pay, and click Buy again on the page that the browser still shows."""
    service.pay(order)
    good, saw = paid_once(shop, order, shop.send(service.event(order)))
    if not good:
        return False, saw
    again = shop.buy_again(order)
    if isinstance(again, int):
        return again < _SERVER_ERROR, f"{said(again)} to the next click on Buy"
    status = service.find(again).status
    return status not in OPEN, f"sent the buyer to a payment that is {status}"


def _return_unpaid(service: Service, shop: Shop, order: Order, payment_id: str) -> Verdict:
    urls = service.return_urls(order)
    saw = _NO_RETURN_URL
    for url in urls:
        status = shop.visit(url, payment_id)
        good, saw = kept(shop, order)
        if not good or status >= _SERVER_ERROR:
            return False, f"{said(status)}; {saw}"
    return True, saw
