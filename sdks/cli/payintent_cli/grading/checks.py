"""What is tried, what a good shop does then, and how to mend one that does something else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from payintent_cli.grading.shop import Order, Shop, event

_ACCEPTED = range(200, 300)
_TOO_LONG = 10 * 1024 * 1024
_OLD_S = 3600


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a shop did in one check."""

    name: str
    tried: str
    passed: bool
    saw: str
    mend: str


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that goes wrong; `run` gives whether the shop did well, and what it did."""

    name: str
    tried: str
    mend: str
    run: Callable[[Shop, Order], tuple[bool, str]]


def grade(shop: Shop) -> list[Outcome]:
    """Run every check, each with an order of its own."""
    return [_outcome(check, shop) for check in CHECKS]


def _outcome(check: Check, shop: Shop) -> Outcome:
    passed, saw = check.run(shop, shop.place_order())
    return Outcome(name=check.name, tried=check.tried, passed=passed, saw=saw, mend=check.mend)


def _paid_once(shop: Shop, order: Order, status: int | None) -> tuple[bool, str]:
    """Tell whether it answered 2xx and handed out what was bought, once."""
    now = shop.look(order, expect_paid=True)
    good = status in _ACCEPTED and (now.status, now.handed_out) == ("paid", 1)
    return good, f"{_said(status)}; {now}"


def _refused(shop: Shop, order: Order, status: int | None) -> tuple[bool, str]:
    """Tell whether it answered no 2xx and handed out nothing."""
    now = shop.look(order, expect_paid=False)
    return status not in _ACCEPTED and now.handed_out == 0, f"{_said(status)}; {now}"


def _said(status: int | None) -> str:
    return "no answer" if status is None else f"answered {status}"


def _plain(shop: Shop, order: Order) -> tuple[bool, str]:
    return _paid_once(shop, order, shop.send(event(order)))


def _duplicate(shop: Shop, order: Order) -> tuple[bool, str]:
    webhook = event(order)
    shop.send(webhook)
    return _paid_once(shop, order, shop.send(webhook))


def _hung_up(shop: Shop, order: Order) -> tuple[bool, str]:
    webhook = event(order)
    shop.send_and_hang_up(webhook)
    return _paid_once(shop, order, shop.send(webhook))


def _late(shop: Shop, order: Order) -> tuple[bool, str]:
    shop.send(event(order))
    return _paid_once(shop, order, shop.send(event(order, "payment.expired")))


def _wrong_signature(shop: Shop, order: Order) -> tuple[bool, str]:
    return _refused(shop, order, shop.send(replace(event(order), secret=b"not the shop's " * 2)))


def _old(shop: Shop, order: Order) -> tuple[bool, str]:
    return _refused(shop, order, shop.send(replace(event(order), age_s=_OLD_S)))


def _rotated(shop: Shop, order: Order) -> tuple[bool, str]:
    return _paid_once(shop, order, shop.send(replace(event(order), other_first=True)))


def _new_fields(shop: Shop, order: Order) -> tuple[bool, str]:
    return _paid_once(shop, order, shop.send(event(order, a_new_field={"x": [1]})))


def _new_kind(shop: Shop, order: Order) -> tuple[bool, str]:
    status = shop.send(event(order, "payment.dreamt"))
    now = shop.look(order, expect_paid=False)
    return status in _ACCEPTED and now.handed_out == 0, f"{_said(status)}; {now}"


def _other_amount(shop: Shop, order: Order) -> tuple[bool, str]:
    shop.send(event(order, amount="0.01"))
    now = shop.look(order, expect_paid=False)
    return now.handed_out == 0, str(now)


def _huge(shop: Shop, order: Order) -> tuple[bool, str]:
    status = shop.send(replace(event(order), body=b" " * _TOO_LONG))
    good, saw = _refused(shop, order, status)
    still, after = _paid_once(shop, order, shop.send(event(order)))
    # Where a server hangs up while the body comes, a status is chance.
    return (
        good and still,
        f"{'accepted it' if status in _ACCEPTED else saw.partition('; ')[2]}; then {after}",
    )


CHECKS = [
    Check(
        name="paid",
        tried="payment.completed, as the service sends it",
        mend="verify the raw body, mark the order paid, answer 2xx",
        run=_plain,
    ),
    Check(
        name="duplicate",
        tried="the same webhook twice",
        mend="remember each webhook-id in the transaction that hands out the goods",
        run=_duplicate,
    ),
    Check(
        name="crash",
        tried="a sender that loses the answer, or waits 3 seconds for it, then the same webhook",
        mend="answer 2xx to a webhook-id that was handled before, and do nothing else",
        run=_hung_up,
    ),
    Check(
        name="late",
        tried="payment.expired after payment.completed",
        mend="let an order end once: a later event does not change a paid one",
        run=_late,
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
        mend="compare amount and currency with the order; a person looks at one that differs",
        run=_other_amount,
    ),
    Check(
        name="huge_body",
        tried="10 MB, then a good webhook",
        mend="bound the body, to 64 KiB for example, before it is read into memory",
        run=_huge,
    ),
]
