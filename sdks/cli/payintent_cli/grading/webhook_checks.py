"""Webhooks that are forged, doubled, late, huge or new, and what a good receiver does."""

from __future__ import annotations

from dataclasses import replace

from payintent_cli.grading.events import Order, event, signed_before
from payintent_cli.grading.judging import (
    ACCEPTED,
    Check,
    Verdict,
    all_paid_once,
    kept,
    paid_once,
    refused,
    said,
)
from payintent_cli.grading.shop import Shop

BODY_BYTES = 10 * 1024 * 1024
_OLD_S = 3600
_DAYS_S = 3 * 24 * 3600  # how long the service tries to deliver, about
_MINUTE_S = 60
PAYMENTS_AT_ONCE = 10


def _plain(shop: Shop, order: Order) -> Verdict:
    return paid_once(shop, order, shop.send(event(order)))


def _duplicate(shop: Shop, order: Order) -> Verdict:
    webhook = event(order)
    shop.send(signed_before(webhook, _MINUTE_S))
    return paid_once(shop, order, shop.send(webhook))


def _race(shop: Shop, order: Order) -> Verdict:
    webhook = event(order)
    shop.send_at_once([webhook, webhook])
    return paid_once(shop, order, shop.send_again(webhook))


def _hung_up(shop: Shop, order: Order) -> Verdict:
    webhook = event(order)
    shop.send_and_hang_up(webhook, order)
    return paid_once(shop, order, shop.send_again(webhook))


def _crowd(shop: Shop, order: Order) -> Verdict:
    orders = [order, *shop.place_orders(PAYMENTS_AT_ONCE - 1)]
    return all_paid_once(shop, orders, shop.send_at_once([event(each) for each in orders]))


def _reordered(shop: Shop, order: Order) -> Verdict:
    orders = [order, shop.place_order()]
    newer, older = event(orders[0]), event(orders[1], ago_s=_MINUTE_S)
    return all_paid_once(shop, orders, [shop.send(newer), shop.send(older)])


def _late(shop: Shop, order: Order) -> Verdict:
    return paid_once(shop, order, shop.send(event(order, ago_s=_DAYS_S)))


def _ended(shop: Shop, order: Order) -> Verdict:
    shop.send(event(order))
    return paid_once(shop, order, shop.send(event(order, "payment.expired")))


def _wrong_signature(shop: Shop, order: Order) -> Verdict:
    return refused(shop, order, shop.send(replace(event(order), secret=b"not the shop's " * 2)))


def _old(shop: Shop, order: Order) -> Verdict:
    return refused(shop, order, shop.send(signed_before(event(order), _OLD_S)))


def _rotated(shop: Shop, order: Order) -> Verdict:
    return paid_once(shop, order, shop.send(replace(event(order), other_first=True)))


def _new_fields(shop: Shop, order: Order) -> Verdict:
    return paid_once(shop, order, shop.send(event(order, a_new_field={"x": [1]})))


def _new_kind(shop: Shop, order: Order) -> Verdict:
    status = shop.send(event(order, "payment.dreamt"))
    good, saw = kept(shop, order)
    return status in ACCEPTED and good, f"{said(status)}; {saw}"


def _other_amount(shop: Shop, order: Order) -> Verdict:
    shop.send(event(order, amount="0.01"))
    return kept(shop, order)


def _other_currency(shop: Shop, order: Order) -> Verdict:
    shop.send(event(order, currency="IDR" if order.currency != "IDR" else "PHP"))
    return kept(shop, order)


def _huge(shop: Shop, order: Order) -> Verdict:
    status = shop.send(replace(event(order), body=b" " * BODY_BYTES))
    good, saw = refused(shop, order, status)
    still, after = paid_once(shop, order, shop.send(event(order)))
    # Where a server hangs up while the body comes, a status is chance.
    return (
        good and still,
        f"{'accepted it' if status in ACCEPTED else saw.partition('; ')[2]}; then {after}",
    )


PAID = Check(
    name="paid",
    tried="payment.completed, as the service sends it",
    mend="verify the raw body, mark the order paid, answer 2xx",
    run=_plain,
)
CHECKS = [
    Check(
        name="crowd",
        tried=f"{PAYMENTS_AT_ONCE} payments at the same time, 15 seconds for each answer",
        mend="store the event and answer 2xx at once; do slow work behind the answer",
        run=_crowd,
    ),
    Check(
        name="duplicate",
        tried="the same event again, signed anew a minute later",
        mend="remember each webhook-id in the transaction that hands out the goods; answer 2xx",
        run=_duplicate,
    ),
    Check(
        name="race",
        tried="the same webhook twice at the same time, then once more",
        mend="let a unique constraint on webhook-id decide, not a look before the write",
        run=_race,
    ),
    Check(
        name="crash",
        tried="a sender that does not wait for the answer, then the same webhook",
        mend="remember the webhook-id with the goods, not when the answer is sent",
        run=_hung_up,
    ),
    Check(
        name="reordered",
        tried="payments of two orders, the newer event first",
        mend="handle each payment's event by itself; events come in no order",
        run=_reordered,
    ),
    Check(
        name="late",
        tried="an event of three days ago, sent now",
        mend="let webhook-timestamp alone be checked for its age; the event may be old",
        run=_late,
    ),
    Check(
        name="ended",
        tried="payment.expired after payment.completed",
        mend="let an order end once: a later event does not change a paid one",
        run=_ended,
    ),
    Check(
        name="wrong_signature",
        tried="payment.completed signed with another secret",
        mend="verify webhook-signature before anything is parsed; answer 401",
        run=_wrong_signature,
    ),
    Check(
        name="old_timestamp",
        tried="a good signature of an hour ago",
        mend="refuse a webhook-timestamp that is more than 300 seconds from now",
        run=_old,
    ),
    Check(
        name="rotation",
        tried="two signatures, the good one second",
        mend="accept a webhook if any of its signatures is good",
        run=_rotated,
    ),
    Check(
        name="unknown_field",
        tried="a field of the payment that is new",
        mend="ignore fields that you do not know",
        run=_new_fields,
    ),
    Check(
        name="unknown_kind",
        tried="an event of a kind that is new",
        mend="answer 2xx to kinds that you do not know, and do nothing",
        run=_new_kind,
    ),
    Check(
        name="other_amount",
        tried="payment.completed with another amount than the order's",
        mend="compare the amount with the order's; a person looks at one that differs",
        run=_other_amount,
    ),
    Check(
        name="other_currency",
        tried="payment.completed with the order's amount in another currency",
        mend="compare the currency too: 20 rupiah are not 20 baht",
        run=_other_currency,
    ),
    Check(
        name="huge_body",
        tried="10 MB, then a good webhook",
        mend="bound the body, to 64 KiB for example, before it is read into memory",
        run=_huge,
    ),
]
