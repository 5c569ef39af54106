"""The demo's books: a dispute that is lost, a payout, and the statement of the day."""

from decimal import Decimal
from uuid import uuid4

from payintent_sandbox.demo.day_end import end_day
from payintent_sandbox.demo.refunds import SIMULATOR, STRIPE, pay, select_quote
from payintent_sandbox.demo.stage import UNPROCESSABLE, DemoStage, Fields, StepError, expect

_FUNDS = ("opening", "payments", "fees", "tax", "refunds", "disputes", "adjustments", "payouts")
_PAID_OUT = "1000.00"


async def lose_a_dispute(stage: DemoStage) -> None:
    """Play a buyer who contests a payment at the bank, and a bank that agrees."""
    if "stripe" not in stage.sandbox.gateways:
        stage.say("left out: this sandbox has no Stripe")
        return
    payment, selected = await select_quote(stage, STRIPE)
    await pay(stage, STRIPE, payment, selected)
    owed = await _owed(stage, STRIPE.currency)
    secret = selected["next_action"]["embedded_card"]["client_secret"]
    dispute = await _at_bank(stage, "", payment_intent=secret.partition("_secret_")[0])
    await _disputed(stage, payment, "open")
    held = await _owed(stage, STRIPE.currency)
    expect("what the dispute holds", owed - held, Decimal(STRIPE.amount))
    stage.say(f"GET balance: {held} {STRIPE.currency}, before it {owed}")
    await _at_bank(stage, f"/{dispute['id']}", status="lost")
    await _disputed(stage, payment, "lost")
    expect("the balance", await _owed(stage, STRIPE.currency), held)
    await stage.shows(payment, "PAID")


async def pay_out(stage: DemoStage) -> None:
    """Play an operator who records what was paid to the merchant, and once too much."""
    payment, selected = await select_quote(stage, SIMULATOR)
    await pay(stage, SIMULATOR, payment, selected)
    owed = await _owed(stage, SIMULATOR.currency)
    wanted = {"merchant_id": stage.sandbox.merchants[0].id, "currency": SIMULATOR.currency}
    reference = f"FT{uuid4().hex[:10]}"
    too_much = wanted | {"amount": str(owed + 1), "reference": reference}
    refused = await stage.operate("POST", "payout/record", too_much, UNPROCESSABLE)
    stage.say(f"payout of {owed + 1} is refused: {refused['message']}")
    paid = wanted | {"amount": _PAID_OUT, "reference": reference}
    payout = await stage.operate("POST", "payout/record", paid)
    rest = await _owed(stage, SIMULATOR.currency)
    expect("what the payout took", owed - rest, Decimal(_PAID_OUT))
    stage.say(f"payout {payout['reference']} of {_PAID_OUT} THB; GET balance: {rest}")


async def state_the_day(stage: DemoStage) -> None:
    """Play the end of the merchant's day: each currency that moved has a statement."""
    await end_day(stage.sandbox.database_url, stage.sandbox.merchants[0].id)
    found = await stage.call("GET", "/statements?limit=100", keyed=True)
    [last, *_] = found["data"]
    for statement in [page for page in found["data"] if page["day"] == last["day"]]:
        moved = {name: Decimal(statement[name]) for name in _FUNDS}
        expect("the closing balance", sum(moved.values()), Decimal(statement["closing"]))
        shown = ", ".join(f"{name} {statement[name]}" for name, value in moved.items() if value)
        stage.say(
            f"statement {statement['number']} of {statement['day']}, "
            f"{_money(statement)}: {shown}, closing {statement['closing']}"
        )


def _money(statement: Fields) -> str:
    on_chain = f" on {statement['chain']}" if "chain" in statement else ""
    return f"{statement['currency']}{on_chain}"


async def _owed(stage: DemoStage, currency: str) -> Decimal:
    found = await stage.call("GET", "/balance", keyed=True)
    owed = [line for line in found["data"] if line["currency"] == currency and "chain" not in line]
    return Decimal(owed[0]["amount"] if owed else 0)


async def _at_bank(stage: DemoStage, path: str, **fields: str) -> Fields:
    """Open or decide a dispute at the emulator of Stripe, as the bank does."""
    url = f"{stage.sandbox.gateways['stripe'].url}/_sandbox/disputes{path}"
    async with stage.http.post(url, json=fields) as answer:
        said: Fields = await answer.json()
    if "id" not in said:
        raise StepError(f"the bank: {said}")
    return said


async def _disputed(stage: DemoStage, payment: Fields, state: str) -> None:
    """Wait until the merchant's list has the payment's dispute in a state."""

    async def listed() -> list[Fields]:
        found = await stage.call("GET", "/disputes?status=ALL&limit=100", keyed=True)
        of_payment = [each for each in found["data"] if each.get("payment_id") == payment["id"]]
        return [each for each in of_payment if each["state"] == state]

    [dispute] = await stage.until(f"dispute that is {state}", listed)
    amount = f"{dispute['amount']} {dispute['currency']}"
    stage.say(f"GET disputes shows {amount}, {dispute['reason']}: {state}, {dispute['funds']}")
