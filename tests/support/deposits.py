"""Setup for deposit tests: a factory on a chain, and wallets that only send tokens."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from payintent.accounting.ledger_store import list_balances
from payintent.chains.factory_operations import AddFactory
from payintent.chains.operations import SetToken
from payintent.evm.abi import encode_sweep_many
from payintent.evm.deposits import derive_deposit_address, init_code_hash
from payintent.evm.event_logs import TRANSFER as LOGGED
from payintent.payments.model import Payment, Session
from payintent_sandbox.chains.contracts import (
    DEPOSIT_FACTORY,
    DEPOSIT_FORWARDER,
    USDT_LIKE_TOKEN,
    load,
)
from payintent_sandbox.chains.deploy import create_contract
from tests.support.onchain import ChainWorld, offer, pay_uuid

TOTAL = 25_500_000_000_000_000_000  # 25.50 with 18 decimals
TRANSFER = bytes.fromhex("a9059cbb")
#: The code of a token that logs `count` transfers of any amount: `transfer(to, amount, count)`.
_FLOODING = (
    f"6044355b602435600052600435337f{LOGGED.hex()}60206000a36001900380600357600160005260206000f3"
)


@dataclass(frozen=True)
class DepositGround:
    """A chain with a deposit factory whose tokens the merchant offers."""

    ground: ChainWorld
    account_id: int
    factory: str
    forwarder: str
    methods: dict[str, int]

    async def bill(self, token: str = "USDT", **changes: Any) -> tuple[Payment, Session]:  # noqa: S107
        fields = {"currency": "USD", "amount": Decimal("25.50"), "amount_text": "25.50"} | changes
        payment = await self.ground.world.create(**fields)
        selected = await self.ground.world.select(payment, self.methods[token])
        return selected.payment, selected.session

    def address(self, session: Session) -> str:
        factory, forwarder = bytes.fromhex(self.factory[2:]), bytes.fromhex(self.forwarder[2:])
        address = derive_deposit_address(factory, init_code_hash(forwarder), pay_uuid(session))
        return f"0x{address.hex()}"

    async def transfer(self, session: Session, amount: int = TOTAL, token: str = "USDT") -> str:  # noqa: S107
        """Send a token from an ordinary wallet, as an exchange does."""
        tx_hash = await self.post_transfer(session, amount, token)
        await self.ground.chain.receipt(tx_hash)
        return tx_hash

    async def post_transfer(
        self,
        session: Session,
        amount: int = TOTAL,
        token: str = "USDT",  # noqa: S107
    ) -> str:
        """Send a token without waiting for a block."""
        recipient = bytes.fromhex(self.address(session)[2:]).rjust(32, b"\0")
        data = TRANSFER + recipient + amount.to_bytes(32, "big")
        step = {"to": self.ground.token(token), "value": "0x0", "data": f"0x{data.hex()}"}
        return await self.ground.post_step(step)

    async def flood(self, session: Session, amount: int, count: int, token: str = "USDT") -> None:  # noqa: S107
        """Replace the token with a hostile one that logs this many transfers of fake money."""
        address = self.ground.token(token)
        await self.ground.chain.ask("anvil_setCode", address, f"0x{_FLOODING}")
        recipient = bytes.fromhex(self.address(session)[2:]).rjust(32, b"\0")
        numbers = amount.to_bytes(32, "big") + count.to_bytes(32, "big")
        data = TRANSFER + recipient + numbers
        await self.ground.send({"to": address, "value": "0x0", "data": f"0x{data.hex()}"})

    async def sweep(self, *sessions: Session, token: str = "USDT") -> str:  # noqa: S107
        """Sweep the sessions' addresses, which anyone can do."""
        address = bytes.fromhex(self.ground.token(token)[2:])
        data = encode_sweep_many([pay_uuid(session) for session in sessions], address)
        return await self.ground.send(
            {"to": self.factory, "value": "0x0", "data": f"0x{data.hex()}"}
        )

    async def call_token(self, function: str, *arguments: Any, token: str = "USDT") -> None:  # noqa: S107
        """Call a function of the token that behaves like USDT."""
        data = load(USDT_LIKE_TOKEN).call_data(function, *arguments)
        await self.ground.send({"to": self.ground.token(token), "value": "0x0", "data": data})

    async def balances(self) -> dict[str, int]:
        """Return the balances of the accounts that hold chain money, by kind and currency."""
        balances = await list_balances(self.ground.world.database, None, None)
        return {
            f"{item.account.split(':')[0]} {item.currency}": int(item.balance_minor)
            for item in balances
            if item.account.startswith("chain_") and item.balance_minor != "0"
        }

    async def expire(self, payment: Payment, *, look: bool = True) -> None:
        """Advance both clocks past the payment's deadline, and make later blocks final."""
        [row] = await self.ground.world.rows(
            "SELECT ceil(extract(epoch FROM expires_at - clock()))::int + 5 AS s FROM payment"
            " WHERE id = $1",
            payment.id,
        )
        await self.ground.pass_time(row["s"])
        if look:
            await self.ground.final()
            await self.ground.final()

    async def outcome(self, payment: Payment) -> tuple[str, str | None, list[str]]:
        """Return a payment's status and failure reason, and the kinds of all cases."""
        ground = self.ground
        return (await ground.status(payment), await ground.reason(payment), await ground.cases())


async def add_factory(ground: ChainWorld, *tokens: str) -> DepositGround:
    deployer, receiver, *_ = await ground.chain.ask("eth_accounts")
    forwarder, _ = await create_contract(ground.chain, deployer, DEPOSIT_FORWARDER, receiver)
    factory, block = await create_contract(ground.chain, deployer, DEPOSIT_FACTORY, forwarder)
    contract = await ground.world.perform(
        AddFactory(
            chain=ground.slug,
            address=factory,
            forwarder=forwarder,
            receiver=receiver,
            deployed_block=block,
        )
    )
    for token in tokens:
        await ground.world.perform(SetToken(chain=ground.slug, symbol=token, enabled=True))
    methods = {token: await offer(ground.world, contract.account_id, token) for token in tokens}
    return DepositGround(ground, contract.account_id, factory, forwarder, methods)
