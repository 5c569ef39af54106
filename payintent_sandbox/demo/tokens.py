"""The demo's payments in tokens: a wallet on every development chain, and one that errs."""

from dataclasses import dataclass

from payintent.evm import abi
from payintent_sandbox.chains.deploy import NATIVE
from payintent_sandbox.chains.rpc import DevChainRpc
from payintent_sandbox.chains.wallet import Wallet
from payintent_sandbox.demo.stage import ACCEPTED, DemoStage, Fields, StepError, expect

PAID_IN = (("ethereum", "USDT"), ("bsc", "USDT"), ("native", "USDT"), ("native", "NATIVED"))
AMOUNT = "25.50"
EXPIRES_IN_S = 8  # time enough to send a transaction that does not fit
EXPIRES_SOON_S = 4

_FAR = 2**40  # a deadline that the contract never sees
_PAST = 1
_DONE, _REVERTED = "0x1", "0x0"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPurchase:
    """A payment that waits for tokens, and the wallet of who shall pay it."""

    stage: DemoStage
    wallet: Wallet
    payment: Fields
    session: Fields

    @property
    def amount(self) -> int:
        """Give what is to be paid, in the token's smallest unit."""
        return int(self.session["amount_smallest_unit"])

    @property
    def token(self) -> str:
        """Give the address of the token that is to be paid."""
        return self.session["token"]["address"] or NATIVE

    async def pay(self) -> None:
        """Do what the session asks for, step by step, as a wallet does."""
        for step in self.session["steps"]:
            if await self._is_needed(step):
                receipt = await self._send(step["to"], step["data"], int(step["value"], 16))
                expect(f"the status of {step['kind']}", receipt["status"], _DONE)
                if step["kind"] == "pay":
                    await self.post(receipt["transactionHash"])

    async def pay_otherwise(
        self, *, token: str = "", amount: int = 0, deadline: int = 0, wanted: str = _DONE
    ) -> str:
        """Pay with something else than the session asks for; gives the transaction's hash."""
        token, amount = token or self.token, amount or self.amount
        contract = self.session["contract_address"]
        if token != NATIVE:
            await self._send(token, _hex(abi.encode_approve(_bytes(contract), amount)))
        uuid = _bytes(self.session["pay_uuid"])
        data = abi.encode_pay(uuid, _bytes(token), amount, deadline or self.session["deadline"])
        value = amount if token == NATIVE else 0
        receipt = await self._send(contract, _hex(data), value)
        expect("the transaction's status", receipt["status"], wanted)
        return receipt["transactionHash"]

    async def post(self, tx_hash: str) -> None:
        """Tell the checkout a transaction's hash, as its page does."""
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
        self.stage.say(f"sent on {chain}, with the buyer's key: {tx_hash[:14]}…")
        return receipt


async def pay_in_tokens(stage: DemoStage) -> None:
    """Play a buyer who pays in every token, each on its chain."""
    bills = [await select(stage, slug, symbol) for slug, symbol in PAID_IN]
    for bill in bills:
        await bill.pay()
    for bill in bills:
        await stage.webhook(bill.payment, "payment.completed")
        seen = await stage.shows(bill.payment, "PAID", "provider", "paid_at", "receipt_id")
        expect("provider", seen["provider"], "gateway_contract")


async def pay_otherwise(stage: DemoStage) -> None:
    """Play money that does not fit: each ends as it must, and none of it is lost."""
    late = await select(stage, "native", "USDT", expires_in=EXPIRES_SOON_S)
    reverted = await select(stage, "bsc", "USDT")
    await reverted.post(await reverted.pay_otherwise(deadline=_PAST, wanted=_REVERTED))
    under = await select(stage, "ethereum", "USDT", expires_in=EXPIRES_IN_S)
    await under.pay_otherwise(amount=under.amount - 1)
    wrong = await select(stage, "native", "USDT", expires_in=EXPIRES_IN_S)
    await wrong.pay_otherwise(token=NATIVE)
    await stage.webhook(late.payment, "payment.expired")
    await late.pay_otherwise(deadline=_FAR)
    await _failed(reverted, "TX_REVERTED")
    await _failed(under, "AMOUNT_MISMATCH", "AMOUNT_MISMATCH")
    await _failed(wrong, "TOKEN_MISMATCH", "TOKEN_MISMATCH")
    await stage.given_back(late.payment, "LATE_PAYMENT")
    await stage.shows(late.payment, "EXPIRED", "expired_at")


async def select(stage: DemoStage, slug: str, symbol: str, expires_in: int = 600) -> TokenPurchase:
    """Create a payment and select a token for it; gives it with the buyer's wallet."""
    chain = stage.sandbox.chains[slug]
    wallet = Wallet(
        DevChainRpc(chain.rpc_url, stage.http), chain.buyer.address, chain.buyer.private_key
    )
    payment = await stage.create(AMOUNT, "USD", f"Paid in {symbol}", expires_in=expires_in)
    answer = await stage.call("GET", f"/checkout/{payment['checkout_id']}/quotes")
    wanted = [
        one
        for one in answer["quotes"]
        if one["kind"] == "onchain" and (one["chain"], one["token"]) == (slug, symbol)
    ]
    if not wanted:
        raise StepError(f"no quote for {symbol} on {slug}")
    selected = await stage.select(payment, wanted[0], "onchain_session")
    session_id = selected["next_action"]["onchain_session"]["session_id"]
    session = await stage.call("GET", f"/onchain/sessions/{session_id}")
    return TokenPurchase(stage=stage, wallet=wallet, payment=payment, session=session)


async def _failed(bill: TokenPurchase, reason: str, case: str = "") -> None:
    told = await bill.stage.webhook(bill.payment, "payment.failed")
    expect("failure_reason", told["failure_reason"], reason)
    await bill.stage.shows(bill.payment, "FAILED", "failure_reason", "failed_at")
    if case:
        await bill.stage.given_back(bill.payment, case)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def _hex(data: bytes) -> str:
    return f"0x{data.hex()}"
