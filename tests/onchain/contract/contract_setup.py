"""The setup of the contract tests: a gateway, its tokens, and accounts."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from payintent_sandbox.chains.contracts import (
    GATEWAY,
    HOSTILE_ACCOUNT,
    HOSTILE_TOKEN,
    PLAIN_TOKEN,
    USDT_LIKE_TOKEN,
)
from tests.support.chain import Deployed, Evm, Receipt

NATIVE = "0x" + 40 * "0"
FAR = 2**40  # a deadline that no test reaches
MINIMUM = 10_000
COIN_MINIMUM = 10**16
BILL = UUID("0192f0c4-1111-7abc-8def-00112233aabb").bytes
OTHER_BILL = UUID("0192f0c4-2222-7abc-8def-00112233aabb").bytes
REFUND = UUID("0192f0c4-3333-7abc-8def-00112233aabb").bytes
OTHER_REFUND = UUID("0192f0c4-4444-7abc-8def-00112233aabb").bytes
RICH = 10**30


@dataclass(frozen=True)
class Ground:
    """A gateway that accepts the native coin and three tokens; all accounts have large balances."""

    evm: Evm
    gateway: Deployed
    usdt: Deployed
    plain: Deployed
    hostile: Deployed
    account: Deployed  # a malicious contract
    receiver: str
    buyer: str
    stranger: str

    def tokens(self) -> list[Deployed]:
        return [self.usdt, self.plain, self.hostile]

    def allow(self, owner: str, token: Deployed, amount: int) -> None:
        token.send(owner, "approve", self.gateway.address, amount)

    def pay(self, token: Deployed | None, amount: int, **changes: Any) -> Receipt:
        """Pay the bill; coins are sent as the value, if there is no token."""
        arguments: dict[str, Any] = {
            "payer": self.buyer,
            "bill": BILL,
            "deadline": FAR,
            "value": 0 if token else amount,
        } | changes
        return self.gateway.send(
            arguments["payer"],
            "pay",
            arguments["bill"],
            token.address if token else NATIVE,
            amount,
            arguments["deadline"],
            value=arguments["value"],
        )

    def refund(self, token: Deployed | None, amount: int, **changes: Any) -> Receipt:
        """Refund the buyer from the stranger's account."""
        arguments: dict[str, Any] = {
            "sender": self.stranger,
            "bill": BILL,
            "refund": REFUND,
            "to": self.buyer,
            "value": 0 if token else amount,
        } | changes
        return self.gateway.send(
            arguments["sender"],
            "refund",
            arguments["bill"],
            arguments["refund"],
            token.address if token else NATIVE,
            arguments["to"],
            amount,
            value=arguments["value"],
        )

    def plot(self, hostile: Deployed, gateway: Deployed, data: str, coins: int) -> None:
        """Make a hostile contract call the gateway when it next moves or receives money."""
        if coins:
            hostile.send(self.stranger, "fund", value=coins)
        inner = bytes.fromhex(data[2:])
        hostile.send(self.stranger, "call_inside", gateway.address, inner, coins)

    def is_paid(self, token: Deployed | None, amount: int, bill: bytes = BILL) -> bool:
        return self.gateway.call("is_paid", bill, token.address if token else NATIVE, amount)

    def balance(self, owner: str, token: Deployed | None) -> int:
        return token.call("balanceOf", owner) if token else self.evm.coins(owner)

    def held(self) -> list[int]:
        """Return the gateway's balances."""
        return [self.balance(self.gateway.address, token) for token in (None, *self.tokens())]


def make_ground(evm: Evm) -> Ground:
    """Deploy everything, with large balances and allowances for buyer and stranger."""
    _, receiver, buyer, stranger, *_ = evm.accounts
    usdt = evm.deploy(USDT_LIKE_TOKEN, "Tether USD", "USDT", 6)
    plain = evm.deploy(PLAIN_TOKEN, "Plain", "PLAIN", 18)
    hostile = evm.deploy(HOSTILE_TOKEN)
    ground = Ground(
        evm=evm,
        gateway=gateway_for(evm, receiver, usdt, plain, hostile),
        usdt=usdt,
        plain=plain,
        hostile=hostile,
        account=evm.deploy(HOSTILE_ACCOUNT),
        receiver=receiver,
        buyer=buyer,
        stranger=stranger,
    )
    for token in ground.tokens():
        for owner in (buyer, stranger):
            token.send(owner, "mint", owner, RICH)
            ground.allow(owner, token, RICH)
    return ground


def gateway_for(evm: Evm, receiver: str, *tokens: Deployed) -> Deployed:
    """Deploy a gateway that accepts the native coin and these tokens."""
    addresses = [NATIVE, *(token.address for token in tokens)]
    return evm.deploy(GATEWAY, receiver, addresses, [COIN_MINIMUM, *(MINIMUM for _ in tokens)])
