"""Demonstrate refunds through each gateway, and refunds that do not succeed immediately."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from decimal import Decimal

from payintent_sandbox.demo.buyers import confirm, pay_at_page, pay_in_element
from payintent_sandbox.demo.stage import (
    CONFLICT,
    CREATED,
    OK,
    UNAVAILABLE,
    Act,
    DemoStage,
    Fields,
    expect,
    seconds_since,
    together,
)
from payintent_sandbox.demo.tokens import AMOUNT, select

ATTEMPTS = 3
DECLINED = "4000000000000002"
REFUND_PENDING = "4000009900000160"
REFUND_REFUSED = "4000009900000178"
REFUND_UNANSWERED = "4000009900000186"
PENDING_S = 60.0  # of the simulator, before time scaling
PATIENCE_S = 60.0  # for a refund to end
PART_IN_TOKENS = "10.00"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPurchase:
    """A purchase that is paid and refunded through the same gateway."""

    provider: str
    currency: str
    amount: str
    part: str  # is refunded first
    card: str
    enter: Callable[[DemoStage, Fields, Fields, str], Awaitable[None]] = pay_at_page


SIMULATOR = DemoPurchase(
    provider="simulator",
    currency="THB",
    amount="1590.00",
    part="590.00",
    card="4242424242424242",
)
STRIPE = DemoPurchase(
    provider="stripe",
    currency="USD",
    amount="49.90",
    part="20.00",
    card="4242424242424242",
    enter=pay_in_element,
)
ECPAY = DemoPurchase(  # amounts are whole dollars
    provider="ecpay",
    currency="TWD",
    amount="1200.00",
    part="500.00",
    card="4311951111111111",
)
TWOC2P = DemoPurchase(
    provider="2c2p",
    currency="THB",
    amount="990.00",
    part="90.50",
    card="4111111111111111",
)
PURCHASES = (SIMULATOR, STRIPE, ECPAY, TWOC2P)


async def refund_with_each(stage: DemoStage) -> None:
    """Demonstrate a payment through each gateway, and its refund in two parts."""
    providers = {"simulator", *stage.sandbox.gateways}
    acts: dict[str, Act] = {
        purchase.provider: _act(purchase)
        for purchase in PURCHASES
        if purchase.provider in providers
    }
    if stage.sandbox.chains:
        acts["gateway_contract"] = _in_tokens
    await together(stage, "every gateway", acts)


async def decline_three_times(stage: DemoStage) -> None:
    """Demonstrate three declined cards with a gateway that lets the buyer retry."""
    if "stripe" in stage.sandbox.gateways:
        await together(stage, "three declined cards", {"stripe": _declined})
    else:
        stage.say("skipped: this sandbox has no Stripe emulator")


async def refund_otherwise(stage: DemoStage) -> None:
    """Demonstrate refunds that end later, fail, or get no response."""
    acts: dict[str, Act] = {
        "pending": _pending,
        "refused": _refused,
        "unanswered": _unanswered,
    }
    await together(stage, "refunds", acts)


def _act(purchase: DemoPurchase) -> Act:
    async def act(stage: DemoStage) -> str:
        began = time.monotonic()
        payment = await _paid(stage, purchase, purchase.card)
        amount = f"{purchase.amount} {purchase.currency}"
        paid = f"{amount} paid, webhook received in {seconds_since(began)}"
        return f"{paid}; {await _in_two_parts(stage, payment, purchase.part)}"

    return act


async def _in_tokens(stage: DemoStage) -> str:
    began = time.monotonic()
    purchase = await select(stage, "native", "USDT")
    await purchase.pay()
    await stage.webhook(purchase.payment, "payment.completed")
    paid = f"{AMOUNT} USD paid in USDT on native, webhook received in {seconds_since(began)}"
    return f"{paid}; {await _in_two_parts(stage, purchase.payment, PART_IN_TOKENS)}"


async def _in_two_parts(stage: DemoStage, payment: Fields, part: str) -> str:
    """Refund a part, then the rest; return how long each took, and the payment's status."""
    lines: list[str] = []
    whole = Decimal(payment["amount"])
    for amount, status, refunded in (
        (part, "PARTIALLY_REFUNDED", Decimal(part)),
        ("", "REFUNDED", whole),
    ):
        began = time.monotonic()
        refund = await _ended(stage, await _request(stage, payment, amount))
        expect("the refund", refund["status"], "SUCCEEDED")
        current = await stage.shows(payment, status, "refunded_amount")
        expect("refunded_amount", Decimal(current["refunded_amount"]), refunded)
        lines.append(f"{refund['amount']} refunded in {seconds_since(began)}")
    return f"{', '.join(lines)}: REFUNDED"


async def _declined(stage: DemoStage) -> str:
    began = time.monotonic()
    payment, selected = await select_quote(stage, STRIPE)
    for _ in range(ATTEMPTS):
        answer = await confirm(stage, selected, DECLINED)
        expect("the element's error", answer.get("error", {}).get("code"), "card_declined")
    failed = await stage.webhook(payment, "payment.failed")
    expect("failure_reason", failed["failure_reason"], "DECLINED")
    await stage.shows(payment, "FAILED", "failed_at")
    return f"{ATTEMPTS} cards declined in {seconds_since(began)}: FAILED, DECLINED"


async def _pending(stage: DemoStage) -> str:
    began = time.monotonic()
    payment = await _paid(stage, SIMULATOR, REFUND_PENDING)
    requested = await _request(stage, payment)
    delay_s = PENDING_S / stage.sandbox.sim_time_scale
    refund = await _ended(stage, requested, delay_s + PATIENCE_S)
    expect("the refund", refund["status"], "SUCCEEDED")
    await stage.shows(payment, "REFUNDED")
    return f"the gateway decided later: SUCCEEDED after {seconds_since(began)}"


async def _refused(stage: DemoStage) -> str:
    payment = await _paid(stage, SIMULATOR, REFUND_REFUSED)
    refund = await _ended(stage, await _request(stage, payment))
    expect("the refund", refund["status"], "FAILED")
    expect("failure_reason", refund["failure_reason"], "DECLINED")
    current = await stage.shows(payment, "PAID", "refunded_amount")
    expect("refunded_amount", Decimal(current["refunded_amount"]), Decimal(0))
    return "the gateway declined the refund: FAILED, DECLINED; the payment is still PAID"


async def _unanswered(stage: DemoStage) -> str:
    """Demonstrate an outage: the refund stays PENDING, and succeeds after the gateway recovers."""
    payment = await _paid(stage, SIMULATOR, REFUND_UNANSWERED)
    requested = await _request(stage, payment)
    await _tried(stage, requested)
    path = f"/payments/{payment['id']}/refunds"
    refused = await stage.call("POST", path, CONFLICT, keyed=True)
    expect("code", refused["code"], "REFUND_EXCEEDS_REMAINING")
    refund = await stage.call("GET", f"/refunds/{requested['id']}", keyed=True)
    expect("the refund", refund["status"], "PENDING")
    await stage.shows(payment, "PAID")
    await _end_outage(stage, requested)
    return f"503, still PENDING; a second refund of the same money: {CONFLICT} {refused['code']}"


async def _paid(stage: DemoStage, purchase: DemoPurchase, card: str) -> Fields:
    """Create a payment, pay it with a card, and wait for its webhook."""
    payment, selected = await select_quote(stage, purchase)
    await pay(stage, replace(purchase, card=card), payment, selected)
    return payment


async def pay(stage: DemoStage, purchase: DemoPurchase, payment: Fields, selected: Fields) -> None:
    """Pay as the buyer, and wait for the payment's webhook."""
    await purchase.enter(stage, payment, selected, purchase.card)
    completed = await stage.webhook(payment, "payment.completed")
    expect("provider", completed["provider"], purchase.provider)


async def select_quote(stage: DemoStage, purchase: DemoPurchase) -> tuple[Fields, Fields]:
    """Create a payment, and select the gateway's first quote; return both."""
    payment = await stage.create(
        purchase.amount, purchase.currency, f"Sold through {purchase.provider}"
    )
    [quote, *_] = await stage.quotes(payment, purchase.provider)
    action = "embedded_card" if purchase.enter is pay_in_element else "redirect"
    return payment, await stage.select(payment, quote, action)


async def _request(stage: DemoStage, payment: Fields, amount: str = "") -> Fields:
    """Request a refund as the merchant. The default amount is the remainder."""
    body = {"amount": amount} if amount else {}
    path = f"/payments/{payment['id']}/refunds"
    refund = await stage.call("POST", path, CREATED, keyed=True, reason="shown in a demo", **body)
    expect("the refund", refund["status"], "PENDING")
    return refund


async def _ended(stage: DemoStage, requested: Fields, patience_s: float = PATIENCE_S) -> Fields:
    """Read a refund until it has ended; refunds have no webhook."""

    async def ended() -> list[Fields]:
        latest = await stage.call("GET", f"/refunds/{requested['id']}", keyed=True)
        return [] if latest["status"] == "PENDING" else [latest]

    [refund] = await stage.until(f"end of {requested['id']}", ended, patience_s)
    return refund


async def _tried(stage: DemoStage, refund: Fields) -> None:
    """Wait until the simulator has responded to a refund with 503."""

    async def answered() -> list[Fields]:
        async with stage.http.get(f"{stage.sandbox.simulator_url}/_sim/log") as answer:
            entries: list[Fields] = await answer.json()
        return [
            entry
            for entry in entries
            if entry.get("status") == UNAVAILABLE and refund["id"] in entry["body"]
        ]

    await stage.until(f"response to {refund['id']}", answered)


async def _end_outage(stage: DemoStage, refund: Fields) -> None:
    """End the outage for this refund, which then succeeds within a minute."""
    rules = [{"match": {"reference": refund["id"]}, "action": "refunds_work"}]
    async with stage.http.put(f"{stage.sandbox.simulator_url}/_sim/rules", json=rules) as answer:
        expect("the response to the rules", answer.status, OK)
