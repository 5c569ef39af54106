"""Checks with real test payments: amounts, deadlines, retries and refunds."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial

from payintent_cli.grading.events import Order, Webhook
from payintent_cli.grading.judging import (
    ACCEPTED,
    Check,
    Verdict,
    kept,
    one_order,
    paid_once,
    said,
)
from payintent_cli.grading.return_checks import (
    OPEN,
    forged_return,
    lost_webhook,
    other_return,
    paid_again,
)
from payintent_cli.grading.service import Service
from payintent_cli.grading.shop import REFUSED, Shop

_DECIDED_LATER = "4000009900000012"  # the bank decides after half a minute
_DECLINED_THEN_PAID = "4000009900000103"
_REFUNDS_DECLINED = "4000009900000178"
_LEFT_S = 10  # the buyer pays this long before the payment's expiry time
_DECISION_S = 30

Try = Callable[[Service, Shop, Order], Verdict]


def _real(service: Service, shop: Shop, order: Order) -> Verdict:
    differs = _differs(service, order)
    return (False, differs) if differs else _pay(service, shop, order)


def _real_change(service: Service, shop: Shop, order: Order) -> Verdict:
    changed = shop.change(order)
    if changed is None:
        return True, "does not change placed orders"
    differs = _differs(service, changed)
    return (False, differs) if differs else _pay(service, shop, changed)


def _cancelled(service: Service, shop: Shop, order: Order) -> Verdict:
    service.cancel_as_buyer(order)
    return _pay_again(service, shop, order)


def _failed(service: Service, shop: Shop, order: Order) -> Verdict:
    service.decline(order)
    shop.send(service.event(order, "payment.failed"))
    return _pay_again(service, shop, order)


def _expired(service: Service, shop: Shop, order: Order) -> Verdict:
    service.let_expire(order)
    return _pay_again(service, shop, order, late=service.event(order, "payment.expired"))


def _clicked_twice_again(service: Service, shop: Shop, order: Order) -> Verdict:
    service.cancel_as_buyer(order)
    return one_order(*shop.click_twice(order.cart_id))


def _paid_late(service: Service, shop: Shop, order: Order) -> Verdict:
    service.pass_time(service.lifetime_s(order) - _LEFT_S)
    service.pay(order, _DECIDED_LATER)
    service.pass_time(_LEFT_S + 1)
    shop.look(order, expect_paid=False)  # gives the shop time to end the order by mistake
    service.pass_time(_DECISION_S)
    good, saw = paid_once(shop, order, shop.send(service.event(order)))
    if good:
        return True, saw
    now, given = shop.look(order, expect_paid=False), service.given_back(order)
    all_back = now.handed_out == 0 and given == Decimal(order.amount)
    return all_back, f"{saw}, {given} refunded"


def _late_money(service: Service, shop: Shop, order: Order) -> Verdict:
    service.pay(order, _DECLINED_THEN_PAID)
    service.wait_for_case(order)
    shop.send(service.event(order, "payment.failed"))
    return kept(shop, order)


def _refund_twice(service: Service, shop: Shop, order: Order) -> Verdict:
    _pay(service, shop, order)
    part, name = _share(order, "0.25"), shop.name_return()
    answers = shop.refund_at_once(order, [(name, part), (name, part)])
    answers.append(shop.refund(order, name, part))
    accepted, given = _accepted(answers), service.given_back(order)
    return given == (part if accepted else 0), f"{given} refunded for one return of {part}"


def _refund_race(service: Service, shop: Shop, order: Order) -> Verdict:
    _pay(service, shop, order)
    most = _share(order, "0.75")
    returns = [(shop.name_return(), most) for _ in range(2)]
    answers = shop.refund_at_once(order, returns)
    accepted, given = _accepted(answers), service.given_back(order)
    answered = all(answer in {*ACCEPTED, REFUSED} for answer in answers)
    return (
        answered and given == accepted * most,
        f"accepted {accepted} of 2 returns of {most}; {given} refunded",
    )


def _refunded_elsewhere(service: Service, shop: Shop, order: Order) -> Verdict:
    _pay(service, shop, order)
    most = _share(order, "0.75")
    service.refund(order, most)
    shop.refund(order, shop.name_return(), most)
    return _shows(service, shop, order)


def _refund_declined(service: Service, shop: Shop, order: Order) -> Verdict:
    _pay(service, shop, order, _REFUNDS_DECLINED)
    shop.refund(order, shop.name_return(), _share(order, "0.25"))
    return _shows(service, shop, order)


def _differs(service: Service, order: Order) -> str:
    """Describe how the payment differs from its order; "" if they match."""
    real = service.find(order)
    if (Decimal(real.amount), real.currency) == (Decimal(order.amount), order.currency):
        return ""
    ordered = f"{order.amount} {order.currency}"
    return f"the payment amount is {real.amount} {real.currency}, but the order is {ordered}"


def _pay(service: Service, shop: Shop, order: Order, card: str | None = None) -> Verdict:
    service.pay(order, card)
    return paid_once(shop, order, shop.send(service.event(order)))


def _pay_again(service: Service, shop: Shop, order: Order, late: Webhook | None = None) -> Verdict:
    """Click Buy again after the order's payment has ended, deliver `late`, and pay."""
    again = shop.buy_again(order)
    if isinstance(again, int):
        return False, f"{said(again)} to the next click on Buy"
    status = service.find(again).status
    if status not in OPEN:
        return False, f"sent the buyer to a payment that is {status}"
    if late is not None:
        shop.send(late)
    return _pay(service, shop, again)


def _shows(service: Service, shop: Shop, order: Order) -> Verdict:
    """Return whether the shop shows the correct refunded amount."""
    given = service.given_back(order)
    shown = shop.look_refunded(order, given)
    return shown == given, f"shows {shown} refunded; the actual amount is {given}"


def _share(order: Order, share: str) -> Decimal:
    """Return a share of an order's amount, with the same number of decimals."""
    amount = Decimal(order.amount)
    return (amount * Decimal(share)).quantize(amount)


def _accepted(answers: list[int | None]) -> int:
    return sum(answer in ACCEPTED for answer in answers)


def checks_with(service: Service) -> list[Check]:
    """Return the checks that make real payments to this test merchant."""
    return [
        Check(name=name, tried=tried, mend=mend, run=partial(run, service))
        for name, tried, mend, run in _CHECKS
    ]


_CHECKS: list[tuple[str, str, str, Try]] = [
    (
        "real",
        "a real payment for the order, paid with a test card",
        "create the payment with the amount and currency of the order",
        _real,
    ),
    (
        "real_change",
        "an order whose amount changes before a real payment",
        "create a new payment with a new Idempotency-Key for the new amount",
        _real_change,
    ),
    (
        "forged_return",
        "a buyer who returns before paying, with status=PAID in the query",
        "ignore the return page's query string; read the order's own payment from the service",
        forged_return,
    ),
    (
        "other_return",
        "a buyer who returns before paying, with the id of a different, paid payment in the query",
        "read the payment that is stored with the order, never the payment_id in the query",
        other_return,
    ),
    (
        "lost_webhook",
        "a paid payment whose webhook arrives only after the shop has polled its open orders",
        "read the payments of open orders every few minutes; use the code that handles webhooks",
        lost_webhook,
    ),
    (
        "paid_again",
        "a buyer who has paid and then clicks Buy again on the same page",
        "if the order is paid, redirect the buyer to its page; do not create another payment",
        paid_again,
    ),
    (
        "buyer_cancelled",
        "a buyer who cancels on the checkout page, which sends no event, and then clicks Buy again",
        "read the payment before you reuse it; if it has ended, start an attempt with a new key",
        _cancelled,
    ),
    (
        "failed_again",
        "a buyer who clicks Buy again after a declined card",
        "after payment.failed, start a new attempt with a new Idempotency-Key",
        _failed,
    ),
    (
        "expired_again",
        "a buyer who clicks Buy again before the first payment's payment.expired event arrives",
        "read the payment before you reuse it; do not let its late event end the new attempt",
        _expired,
    ),
    (
        "double_click_again",
        "a buyer who clicks Buy twice at the same time after cancelling on the checkout page",
        "number the attempts; derive the Idempotency-Key from the order and attempt number",
        _clicked_twice_again,
    ),
    (
        "paid_late",
        "a payment that is paid after its expiry time because the bank decided late",
        "expire an order only after payment.expired; deliver or fully refund a late payment",
        _paid_late,
    ),
    (
        "late_money",
        "a card that is declined, then charged; the service opens a case for the money",
        "deliver only after payment.completed; the service refunds late money automatically",
        _late_money,
    ),
    (
        "refund_twice",
        "two concurrent clicks on Refund for one return, then another click",
        "store one Idempotency-Key with the return before you call the service",
        _refund_twice,
    ),
    (
        "refund_race",
        "two concurrent returns whose sum exceeds the payment",
        "accept a refund only if the service responds with 201",
        _refund_race,
    ),
    (
        "refunded_elsewhere",
        "a refund in the shop after a refund outside the shop",
        "read the payment's refunded_amount; do not sum the shop's own refunds",
        _refunded_elsewhere,
    ),
    (
        "refund_declined",
        "a refund that is accepted, then declined",
        "wait until the refund is SUCCEEDED; a FAILED refund does not return money",
        _refund_declined,
    ),
]
