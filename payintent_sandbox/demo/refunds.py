"""The demo's refunds: a payment at each gateway is given back, and refunds go otherwise."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
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
PENDING_S = 60.0  # of the simulator, before its time scale
PATIENCE_S = 60.0  # with a refund
PART_IN_TOKENS = "10.00"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPurchase:
    """What is sold and given back at one gateway."""

    provider: str
    currency: str
    amount: str
    part: str  # is given back first
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
ECPAY = DemoPurchase(  # which counts whole dollars
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
TRADES = (SIMULATOR, STRIPE, ECPAY, TWOC2P)


async def refund_with_each(stage: DemoStage) -> None:
    """Play a payment at each gateway, given back in two parts."""
    there = {"simulator", *stage.sandbox.gateways}
    acts: dict[str, Act] = {one.provider: _act(one) for one in TRADES if one.provider in there}
    if stage.sandbox.chains:
        acts["gateway_contract"] = _in_tokens
    await together(stage, "every gateway", acts)


async def decline_three_times(stage: DemoStage) -> None:
    """Play a buyer whose cards are declined where a gateway lets him try again."""
    if "stripe" in stage.sandbox.gateways:
        await together(stage, "three declined cards", {"stripe": _declined})
    else:
        stage.say("left out: this sandbox has no Stripe")


async def refund_otherwise(stage: DemoStage) -> None:
    """Play refunds that do not end at once, or not well."""
    acts: dict[str, Act] = {
        "pending": _pending,
        "refused": _refused,
        "not answered": _unanswered,
    }
    await together(stage, "refunds", acts)


def _act(trade: DemoPurchase) -> Act:
    async def act(stage: DemoStage) -> str:
        began = time.monotonic()
        payment = await _paid(stage, trade, trade.card)
        paid = f"{trade.amount} {trade.currency} paid and told in {seconds_since(began)}"
        return f"{paid}; {await _in_two_parts(stage, payment, trade.part)}"

    return act


async def _in_tokens(stage: DemoStage) -> str:
    began = time.monotonic()
    bill = await select(stage, "native", "USDT")
    await bill.pay()
    await stage.webhook(bill.payment, "payment.completed")
    paid = f"{AMOUNT} USD paid in USDT on native and told in {seconds_since(began)}"
    return f"{paid}; {await _in_two_parts(stage, bill.payment, PART_IN_TOKENS)}"


async def _in_two_parts(stage: DemoStage, payment: Fields, part: str) -> str:
    """Give a part back, then the rest; tells how long each took and how the payment ended."""
    told: list[str] = []
    whole = Decimal(payment["amount"])
    for amount, status, sum_back in (
        (part, "PARTIALLY_REFUNDED", Decimal(part)),
        ("", "REFUNDED", whole),
    ):
        began = time.monotonic()
        refund = await _ended(stage, await _ask(stage, payment, amount))
        expect("the refund", refund["status"], "SUCCEEDED")
        seen = await stage.shows(payment, status, "refunded_amount")
        expect("refunded_amount", Decimal(seen["refunded_amount"]), sum_back)
        told.append(f"{refund['amount']} given back in {seconds_since(began)}")
    return f"{', '.join(told)}: REFUNDED"


async def _declined(stage: DemoStage) -> str:
    began = time.monotonic()
    payment, selected = await _selected(stage, STRIPE)
    for _ in range(ATTEMPTS):
        answer = await confirm(stage, selected, DECLINED)
        expect("the element's error", answer.get("error", {}).get("code"), "card_declined")
    told = await stage.webhook(payment, "payment.failed")
    expect("failure_reason", told["failure_reason"], "DECLINED")
    await stage.shows(payment, "FAILED", "failed_at")
    return f"{ATTEMPTS} cards declined in {seconds_since(began)}: FAILED, DECLINED"


async def _pending(stage: DemoStage) -> str:
    began = time.monotonic()
    payment = await _paid(stage, SIMULATOR, REFUND_PENDING)
    asked = await _ask(stage, payment)
    delay_s = PENDING_S / stage.sandbox.sim_time_scale
    refund = await _ended(stage, asked, delay_s + PATIENCE_S)
    expect("the refund", refund["status"], "SUCCEEDED")
    await stage.shows(payment, "REFUNDED")
    return f"the gateway decided later, told after {seconds_since(began)}: SUCCEEDED"


async def _refused(stage: DemoStage) -> str:
    payment = await _paid(stage, SIMULATOR, REFUND_REFUSED)
    refund = await _ended(stage, await _ask(stage, payment))
    expect("the refund", refund["status"], "FAILED")
    expect("failure_reason", refund["failure_reason"], "DECLINED")
    seen = await stage.shows(payment, "PAID", "refunded_amount")
    expect("refunded_amount", Decimal(seen["refunded_amount"]), Decimal(0))
    return "the gateway gives nothing back: FAILED, DECLINED; the payment stays PAID"


async def _unanswered(stage: DemoStage) -> str:
    """Play an outage: what is reserved stays so, and goes back once the gateway answers again."""
    payment = await _paid(stage, SIMULATOR, REFUND_UNANSWERED)
    asked = await _ask(stage, payment)
    await _tried(stage, asked)
    path = f"/payments/{payment['id']}/refunds"
    refused = await stage.call("POST", path, CONFLICT, keyed=True)
    expect("code", refused["code"], "REFUND_EXCEEDS_REMAINING")
    seen = await stage.call("GET", f"/refunds/{asked['id']}", keyed=True)
    expect("the refund", seen["status"], "PENDING")
    await stage.shows(payment, "PAID")
    await _mend(stage, asked)
    return f"503, so PENDING; a second one of the same money: {CONFLICT} {refused['code']}"


async def _paid(stage: DemoStage, trade: DemoPurchase, card: str) -> Fields:
    """Create a payment, pay it with a card, and have the webhook that tells so."""
    payment, selected = await _selected(stage, trade)
    await trade.enter(stage, payment, selected, card)
    told = await stage.webhook(payment, "payment.completed")
    expect("provider", told["provider"], trade.provider)
    return payment


async def _selected(stage: DemoStage, trade: DemoPurchase) -> tuple[Fields, Fields]:
    payment = await stage.create(trade.amount, trade.currency, f"Sold through {trade.provider}")
    [quote, *_] = await stage.quotes(payment, trade.provider)
    action = "embedded_card" if trade.enter is pay_in_element else "redirect"
    return payment, await stage.select(payment, quote, action)


async def _ask(stage: DemoStage, payment: Fields, amount: str = "") -> Fields:
    """Ask for a refund, as the merchant; without an amount, of all that is left."""
    body = {"amount": amount} if amount else {}
    path = f"/payments/{payment['id']}/refunds"
    asked = await stage.call("POST", path, CREATED, keyed=True, reason="shown in a demo", **body)
    expect("the refund", asked["status"], "PENDING")
    return asked


async def _ended(stage: DemoStage, asked: Fields, patience_s: float = PATIENCE_S) -> Fields:
    """Read a refund until it has ended: no webhook tells of it."""

    async def ended() -> list[Fields]:
        seen = await stage.call("GET", f"/refunds/{asked['id']}", keyed=True)
        return [] if seen["status"] == "PENDING" else [seen]

    [refund] = await stage.until(f"end of {asked['id']}", ended, patience_s)
    return refund


async def _tried(stage: DemoStage, asked: Fields) -> None:
    """Wait until the simulator has answered a refund with 503."""

    async def answered() -> list[Fields]:
        async with stage.http.get(f"{stage.sandbox.simulator_url}/_sim/log") as answer:
            entries: list[Fields] = await answer.json()
        return [
            entry
            for entry in entries
            if entry.get("status") == UNAVAILABLE and asked["id"] in entry["body"]
        ]

    await stage.until(f"an answer to {asked['id']}", answered)


async def _mend(stage: DemoStage, asked: Fields) -> None:
    """End the outage for this refund, which then goes back by itself within a minute."""
    rules = [{"match": {"reference": asked["id"]}, "action": "refunds_work"}]
    async with stage.http.put(f"{stage.sandbox.simulator_url}/_sim/rules", json=rules) as answer:
        expect("the answer to rules", answer.status, OK)
