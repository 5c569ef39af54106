"""The demo's payment to an address: two transfers, a sweep, and a refund to the buyer's address."""

import re
from decimal import Decimal
from urllib.parse import urljoin

from payintent.evm import abi
from payintent_sandbox.chains.deploy import ChainBuyer
from payintent_sandbox.demo.stage import (
    CREATED,
    OK,
    SEE_OTHER,
    DemoStage,
    Fields,
    StepError,
    expect,
)
from payintent_sandbox.demo.tokens import TokenPurchase, select

CHAIN, TOKEN = "bsc", "USDT"
_TRANSFER = bytes.fromhex("a9059cbb")
_REFUND_PATH = re.compile(r"/c/refund/[A-Za-z0-9_-]{44}")


async def pay_to_an_address(stage: DemoStage) -> None:
    """Demonstrate a two-part payment to an address, with its sweep and refund."""
    purchase = await select(stage, CHAIN, TOKEN, provider="onchain")
    address = purchase.session["deposit_address"]
    await _send(purchase, address, purchase.amount // 2)
    [part] = await stage.until("first part", lambda: _received(purchase, purchase.amount // 2))
    stage.say(f"received {part['received']['amount']}, remaining {part['remaining']['amount']}")
    await _send(purchase, address, purchase.amount - purchase.amount // 2)
    completed = await stage.webhook(purchase.payment, "payment.completed")
    expect("provider", completed["provider"], "onchain")
    await stage.shows(purchase.payment, "PAID", "provider", "paid_at", "receipt_id")
    await _sweep(purchase, address)
    await _refund(purchase)


async def _send(purchase: TokenPurchase, address: str, amount: int) -> None:
    """Send tokens from an ordinary wallet, as an exchange does."""
    recipient = bytes.fromhex(address[2:]).rjust(abi.WORD, b"\0")
    data = _TRANSFER + recipient + amount.to_bytes(abi.WORD, "big")
    receipt = await purchase.wallet.send(purchase.token, f"0x{data.hex()}")
    expect("the transfer's status", receipt["status"], "0x1")
    purchase.stage.say(f"sent {amount} units to {address[:14]}…")


async def _received(purchase: TokenPurchase, amount: int) -> list[Fields]:
    """Read the session once this amount is final."""
    session = await purchase.stage.call("GET", f"/onchain/sessions/{purchase.session['id']}")
    return [session] if session["received"]["amount_smallest_unit"] == str(amount) else []


async def _balance(purchase: TokenPurchase, address: str) -> int:
    owner = bytes.fromhex(address[2:])
    return await purchase.wallet.ask(purchase.token, f"0x{abi.encode_balance_of(owner).hex()}")


async def _sweep(purchase: TokenPurchase, address: str) -> None:
    """Sweep the chain as the operator, and wait until the address is empty."""
    await purchase.stage.operate("POST", "chain/sweep-now", {"chain": CHAIN})

    async def is_empty() -> list[Fields]:
        return [{}] if await _balance(purchase, address) == 0 else []

    await purchase.stage.until("sweep", is_empty)
    purchase.stage.say("swept to the receiver")


async def _refund(purchase: TokenPurchase) -> None:
    """Refund the payment to an address that the buyer enters on the checkout page."""
    stage, payment = purchase.stage, purchase.payment
    path = f"/payments/{payment['id']}/refunds"
    refund = await stage.call("POST", path, CREATED, keyed=True, reason="shown in a demo")
    expect("the refund", refund["status"], "PENDING")
    own = ChainBuyer.make().address
    url = await _find_refund_page(stage, payment["checkout_url"])
    async with stage.http.post(url, data={"address": own}, allow_redirects=False) as answer:
        expect("the response to the address", answer.status, SEE_OTHER)
    stage.say(f"the buyer entered {own[:14]}… for the refund")

    async def ended() -> list[Fields]:
        latest = await stage.call("GET", f"/refunds/{refund['id']}", keyed=True)
        return [] if latest["status"] == "PENDING" else [latest]

    [result] = await stage.until("end of the refund", ended, patience_s=60)
    expect("the refund", result["status"], "SUCCEEDED")
    expect("the buyer's balance", await _balance(purchase, own), purchase.amount)
    current = await stage.shows(payment, "REFUNDED", "refunded_amount")
    expect("refunded_amount", Decimal(current["refunded_amount"]), Decimal(payment["amount"]))


async def _find_refund_page(stage: DemoStage, checkout_url: str) -> str:
    async with stage.http.get(checkout_url) as answer:
        expect("the checkout page", answer.status, OK)
        path = _REFUND_PATH.search(await answer.text())
    if path is None:
        raise StepError("the checkout page has no link to the refund page")
    return urljoin(checkout_url, path[0])
