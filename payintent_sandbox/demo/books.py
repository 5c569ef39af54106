"""The demo's bookkeeping: a lost dispute, a payout, and the day's statement."""

from decimal import Decimal
from uuid import uuid4

from payintent_sandbox.demo.day_end import end_day
from payintent_sandbox.demo.refunds import SIMULATOR, STRIPE, pay, select_quote
from payintent_sandbox.demo.stage import UNPROCESSABLE, DemoStage, Fields, StepError, expect

_FUNDS = ("opening", "payments", "fees", "tax", "refunds", "disputes", "adjustments", "payouts")
_PAID_OUT = "1000.00"


async def lose_a_dispute(stage: DemoStage) -> None:
    """Dispute a payment as the buyer, and lose the dispute as the merchant."""
    if "stripe" not in stage.sandbox.gateways:
        stage.say("skipped: this sandbox has no Stripe emulator")
        return
    payment, selected = await select_quote(stage, STRIPE)
    await pay(stage, STRIPE, payment, selected)
    balance = await _owed(stage, STRIPE.currency)
    secret = selected["next_action"]["embedded_card"]["client_secret"]
    dispute = await _at_bank(stage, "", payment_intent=secret.partition("_secret_")[0])
    await _disputed(stage, payment, "open")
    remaining = await _owed(stage, STRIPE.currency)
    expect("the disputed amount", balance - remaining, Decimal(STRIPE.amount))
    stage.say(f"GET balance: {remaining} {STRIPE.currency}, previously {balance}")
    await _at_bank(stage, f"/{dispute['id']}", status="lost")
    await _disputed(stage, payment, "lost")
    expect("the balance", await _owed(stage, STRIPE.currency), remaining)
    await stage.shows(payment, "PAID")


async def pay_out(stage: DemoStage) -> None:
    """Record payouts as the operator; an excessive payout is rejected."""
    payment, selected = await select_quote(stage, SIMULATOR)
    await pay(stage, SIMULATOR, payment, selected)
    balance = await _owed(stage, SIMULATOR.currency)
    recipient = {"merchant_id": stage.sandbox.merchants[0].id, "currency": SIMULATOR.currency}
    reference = f"FT{uuid4().hex[:10]}"
    too_much = recipient | {"amount": str(balance + 1), "reference": reference}
    refused = await stage.operate("POST", "payout/record", too_much, UNPROCESSABLE)
    stage.say(f"a payout of {balance + 1} is rejected: {refused['message']}")
    paid = recipient | {"amount": _PAID_OUT, "reference": reference}
    payout = await stage.operate("POST", "payout/record", paid)
    rest = await _owed(stage, SIMULATOR.currency)
    expect("the amount paid out", balance - rest, Decimal(_PAID_OUT))
    stage.say(f"payout {payout['reference']} of {_PAID_OUT} THB; GET balance: {rest}")


async def state_the_day(stage: DemoStage) -> None:
    """Demonstrate the end of the merchant's day, with a statement for each active currency."""
    await end_day(stage.sandbox.database_url, stage.sandbox.merchants[0].id)
    response = await stage.call("GET", "/statements?limit=100", keyed=True)
    [last, *_] = response["data"]
    for statement in [page for page in response["data"] if page["day"] == last["day"]]:
        moved = {name: Decimal(statement[name]) for name in _FUNDS}
        expect("the closing balance", sum(moved.values()), Decimal(statement["closing"]))
        movements = ", ".join(f"{name} {statement[name]}" for name, value in moved.items() if value)
        stage.say(
            f"statement {statement['number']} for {statement['day']}, "
            f"{_money(statement)}: {movements}, closing {statement['closing']}"
        )


def _money(statement: Fields) -> str:
    on_chain = f" on {statement['chain']}" if "chain" in statement else ""
    return f"{statement['currency']}{on_chain}"


async def _owed(stage: DemoStage, currency: str) -> Decimal:
    response = await stage.call("GET", "/balance", keyed=True)
    balance = [
        line for line in response["data"] if line["currency"] == currency and "chain" not in line
    ]
    return Decimal(balance[0]["amount"] if balance else 0)


async def _at_bank(stage: DemoStage, path: str, **fields: str) -> Fields:
    """Open or decide a dispute at the Stripe emulator, as the bank does."""
    url = f"{stage.sandbox.gateways['stripe'].url}/_sandbox/disputes{path}"
    async with stage.http.post(url, json=fields) as answer:
        content: Fields = await answer.json()
    if "id" not in content:
        raise StepError(f"the bank: {content}")
    return content


async def _disputed(stage: DemoStage, payment: Fields, state: str) -> None:
    """Wait until the merchant's list shows the payment's dispute in a state."""

    async def listed() -> list[Fields]:
        response = await stage.call("GET", "/disputes?status=ALL&limit=100", keyed=True)
        of_payment = [each for each in response["data"] if each.get("payment_id") == payment["id"]]
        return [each for each in of_payment if each["state"] == state]

    [dispute] = await stage.until(f"dispute in state {state}", listed)
    amount = f"{dispute['amount']} {dispute['currency']}"
    stage.say(f"GET disputes shows {amount}, {dispute['reason']}: {state}, {dispute['funds']}")
