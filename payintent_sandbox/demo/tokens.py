"""The demo's token payments on every development chain, including transfers that do not match."""

from dataclasses import dataclass

from payintent.evm import abi
from payintent_sandbox.chains.deploy import NATIVE
from payintent_sandbox.chains.rpc import DevChainRpc
from payintent_sandbox.chains.wallet import Wallet
from payintent_sandbox.demo.stage import ACCEPTED, DemoStage, Fields, StepError, expect

PAID_IN = (
    *(("ethereum", "USDT"), ("ethereum", "USDC"), ("bsc", "USDT"), ("bsc", "USDC")),
    *(("native", "USDT"), ("native", "NATIVED")),
)
AMOUNT = "25.50"
EXPIRES_IN_S = 8  # enough to send a transaction that does not match
EXPIRES_SOON_S = 4

_FAR = 2**40  # a deadline that never passes
_PAST = 1
_DONE, _REVERTED = "0x1", "0x0"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPurchase:
    """A payment that awaits tokens, and the buyer's wallet."""

    stage: DemoStage
    wallet: Wallet
    payment: Fields
    session: Fields

    @property
    def amount(self) -> int:
        """The amount to pay, in the token's smallest unit."""
        return int(self.session["amount_smallest_unit"])

    @property
    def token(self) -> str:
        """The address of the token to pay with."""
        return self.session["token"]["address"] or NATIVE

    async def pay(self) -> None:
        """Send the session's transactions, as a wallet would."""
        for step in self.session["steps"]:
            if await self._is_needed(step):
                receipt = await self._send(step["to"], step["data"], int(step["value"], 16))
                expect(f"the status of {step['kind']}", receipt["status"], _DONE)
                if step["kind"] == "pay":
                    await self.post(receipt["transactionHash"])

    async def pay_otherwise(
        self, *, token: str = "", amount: int = 0, deadline: int = 0, status: str = _DONE
    ) -> str:
        """Pay something other than what the session expects; return the transaction hash."""
        token, amount = token or self.token, amount or self.amount
        contract = self.session["contract_address"]
        if token != NATIVE:
            await self._send(token, _hex(abi.encode_approve(_bytes(contract), amount)))
        uuid = _bytes(self.session["pay_uuid"])
        data = abi.encode_pay(uuid, _bytes(token), amount, deadline or self.session["deadline"])
        value = amount if token == NATIVE else 0
        receipt = await self._send(contract, _hex(data), value)
        expect("the transaction's status", receipt["status"], status)
        return receipt["transactionHash"]

    async def post(self, tx_hash: str) -> None:
        """Post a transaction hash to the checkout, as its page does."""
        path = f"/onchain/sessions/{self.session['id']}/transactions"
        await self.stage.call("POST", path, ACCEPTED, tx_hash=tx_hash, step="pay")

    async def _is_needed(self, step: Fields) -> bool:
        if step["when"] == "always":
            return True
        check = self.session["checks"]["allowance"]
        payer = self.wallet.address[2:]
        allowed = await self.wallet.ask(check["to"], check["data"].replace("{payer}", payer))
        return allowed < self.amount and (allowed > 0 or step["when"] == "allowance_lt_amount")

    async def _send(self, to: str, data: str, value: int = 0) -> Fields:
        receipt = await self.wallet.send(to, data, value)
        chain, tx_hash = self.session["chain"]["slug"], receipt["transactionHash"]
        self.stage.say(f"sent on {chain} with the buyer's key: {tx_hash[:14]}…")
        return receipt


async def pay_in_tokens(stage: DemoStage) -> None:
    """Demonstrate a payment in every token, each on its chain."""
    purchases = [await select(stage, slug, symbol) for slug, symbol in PAID_IN]
    for purchase in purchases:
        await purchase.pay()
    for purchase in purchases:
        await stage.webhook(purchase.payment, "payment.completed")
        current = await stage.shows(purchase.payment, "PAID", "provider", "paid_at", "receipt_id")
        expect("provider", current["provider"], "gateway_contract")


async def pay_otherwise(stage: DemoStage) -> None:
    """Demonstrate transfers that do not match their session. Each is refunded."""
    late = await select(stage, "native", "USDT", expires_in=EXPIRES_SOON_S)
    reverted = await select(stage, "bsc", "USDT")
    await reverted.post(await reverted.pay_otherwise(deadline=_PAST, status=_REVERTED))
    under = await select(stage, "ethereum", "USDT", expires_in=EXPIRES_IN_S)
    await under.pay_otherwise(amount=under.amount - 1)
    wrong = await select(stage, "native", "USDT", expires_in=EXPIRES_IN_S)
    await wrong.pay_otherwise(token=NATIVE)
    await stage.webhook(late.payment, "payment.expired")
    await late.pay_otherwise(deadline=_FAR)
    await _failed(reverted, "TX_REVERTED")
    await _failed(under, "AMOUNT_MISMATCH", "AMOUNT_MISMATCH")
    await _failed(wrong, "TOKEN_MISMATCH", "TOKEN_MISMATCH")
    await stage.refunded_by_policy(late.payment, "LATE_PAYMENT")
    await stage.shows(late.payment, "EXPIRED", "expired_at")


async def select(
    stage: DemoStage,
    slug: str,
    symbol: str,
    expires_in: int = 600,
    provider: str = "gateway_contract",
) -> TokenPurchase:
    """Create a payment, and select a token for it."""
    chain = stage.sandbox.chains[slug]
    wallet = Wallet(
        DevChainRpc(chain.rpc_url, stage.http), chain.buyer.address, chain.buyer.private_key
    )
    payment = await stage.create(AMOUNT, "USD", f"Paid in {symbol}", expires_in=expires_in)
    answer = await stage.call("GET", f"/checkout/{payment['checkout_id']}/quotes")
    matching_quotes = [
        quote
        for quote in answer["quotes"]
        if quote["provider"] == provider and (quote["chain"], quote["token"]) == (slug, symbol)
    ]
    if not matching_quotes:
        raise StepError(f"no quote for {symbol} on {slug}")
    selected = await stage.select(payment, matching_quotes[0], "onchain_session")
    session_id = selected["next_action"]["onchain_session"]["session_id"]
    session = await stage.call("GET", f"/onchain/sessions/{session_id}")
    return TokenPurchase(stage=stage, wallet=wallet, payment=payment, session=session)


async def _failed(purchase: TokenPurchase, reason: str, case: str = "") -> None:
    failed = await purchase.stage.webhook(purchase.payment, "payment.failed")
    expect("failure_reason", failed["failure_reason"], reason)
    await purchase.stage.shows(purchase.payment, "FAILED", "failure_reason", "failed_at")
    if case:
        await purchase.stage.refunded_by_policy(purchase.payment, case)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def _hex(data: bytes) -> str:
    return f"0x{data.hex()}"
