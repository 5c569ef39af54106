"""Checks with webhooks that are forged, repeated, late, huge or of an unknown type."""

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
_DAYS_S = 3 * 24 * 3600  # about as long as the service retries a delivery
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
    # If a server disconnects while it receives the body, the status is unpredictable.
    first = "accepted the large body" if status in ACCEPTED else saw.partition("; ")[2]
    return good and still, f"{first}; then {after}"


PAID = Check(
    name="paid",
    tried="payment.completed as sent by the service",
    mend="verify the raw body, mark the order as paid and respond with 2xx",
    run=_plain,
)
CHECKS = [
    Check(
        name="crowd",
        tried=f"webhooks for {PAYMENTS_AT_ONCE} orders at once, each with a timeout of 15 seconds",
        mend="store the event and respond with 2xx; do slow work in the background",
        run=_crowd,
    ),
    Check(
        name="duplicate",
        tried="the same event again, with a new signature one minute later",
        mend="store each webhook-id in the transaction that delivers the goods; respond with 2xx",
        run=_duplicate,
    ),
    Check(
        name="race",
        tried="the same webhook twice at the same time, then once more",
        mend="use a unique constraint on webhook-id instead of a check before the write",
        run=_race,
    ),
    Check(
        name="crash",
        tried="a webhook whose sender disconnects before the response, then the same webhook",
        mend="store the webhook-id when you deliver the goods, not when you respond",
        run=_hung_up,
    ),
    Check(
        name="reordered",
        tried="events for two orders, the newer event first",
        mend="handle each event independently; events arrive in any order",
        run=_reordered,
    ),
    Check(
        name="late",
        tried="a three-day-old event, sent now",
        mend="check only the age of webhook-timestamp; the event itself can be old",
        run=_late,
    ),
    Check(
        name="ended",
        tried="payment.expired after payment.completed",
        mend="make the final state of an order permanent; ignore later events for a paid order",
        run=_ended,
    ),
    Check(
        name="wrong_signature",
        tried="payment.completed signed with the wrong secret",
        mend="verify webhook-signature before you parse the body; respond with 401",
        run=_wrong_signature,
    ),
    Check(
        name="old_timestamp",
        tried="a valid signature from one hour ago",
        mend="reject a webhook-timestamp that differs from your clock by more than 300 seconds",
        run=_old,
    ),
    Check(
        name="rotation",
        tried="two signatures, of which the second is valid",
        mend="accept a webhook if any of its signatures is valid",
        run=_rotated,
    ),
    Check(
        name="unknown_field",
        tried="a payment with a new field",
        mend="ignore unknown fields",
        run=_new_fields,
    ),
    Check(
        name="unknown_kind",
        tried="an event of a new type",
        mend="respond with 2xx to unknown types and do nothing",
        run=_new_kind,
    ),
    Check(
        name="other_amount",
        tried="payment.completed with an amount that differs from the order's",
        mend="compare the amount with the order's amount; review any difference manually",
        run=_other_amount,
    ),
    Check(
        name="other_currency",
        tried="payment.completed with the same amount in a different currency",
        mend="compare the currency too: 20 rupiah is not 20 baht",
        run=_other_currency,
    ),
    Check(
        name="huge_body",
        tried="a body of 10 MB, then a valid webhook",
        mend="limit the size of the body, for example to 64 KiB, before you read it into memory",
        run=_huge,
    ),
]
