"""Setup for on-chain tests: a chain, our contract, and passes of the watcher."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from payintent.chains import store as chain_store
from payintent.chains import watch_store as chain_watch_store
from payintent.chains.operations import AddContract, SetToken
from payintent.chains.store import ChainCursor
from payintent.core import ids
from payintent.evm import abi
from payintent.evm.chain_reader import Finality, ReaderConfig, RpcChainReader
from payintent.merchants.methods_operations import AddPaymentMethod
from payintent.onchain.operations import SetChain
from payintent.onchain.pending_store import add_posted_hash
from payintent.onchain.wallet_sessions import get_session_view
from payintent.onchain.watch_loop import watch_once
from payintent.payment_sessions.expire import expire_processing
from payintent.payments import sessions_store as session_store
from payintent.payments.expire import expire_pending
from payintent.payments.model import Payment, Session
from payintent_sandbox.chains.deploy import PLANS, Deployment, deploy, fund
from payintent_sandbox.chains.rpc import DevChainRpc, open_chain
from tests.support.contracts import WATCHED_S
from tests.support.world import World

SLUG = "native"


class SkippingClock:
    """A running clock that can be advanced, so that tests do not wait for delays."""

    def __init__(self) -> None:
        self.skipped_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.skipped_s


@dataclass
class ChainWorld:
    """A development chain with our contract, on which the world's merchant accepts payments."""

    world: World
    chain: DevChainRpc
    deployment: Deployment
    reader: RpcChainReader
    account_id: int
    methods: dict[str, int] = field(default_factory=dict)
    payer: str = ""
    slug: str = SLUG
    clock: SkippingClock = field(default_factory=SkippingClock)
    moved_s: int = 0

    async def bill(self, token: str, **changes: Any) -> tuple[Payment, Session]:
        """Create a payment of 25.50 USD and select a token for it."""
        fields = {"currency": "USD", "amount": Decimal("25.50"), "amount_text": "25.50"} | changes
        payment = await self.world.create(**fields)
        selected = await self.world.select(payment, self.methods[token])
        return selected.payment, selected.session

    async def view(self, session: Session) -> dict[str, Any]:
        """Read a session as a wallet does."""
        service = self.world.service
        return await get_session_view(service.database, session.id, service.wallet_handoff)

    async def send(self, step: dict[str, Any], sender: str = "") -> str:
        """Send a step of a session, and return its hash even if it is reverted."""
        tx_hash = await self.post_step(step, sender)
        await self.chain.receipt(tx_hash)
        return tx_hash

    async def post_step(self, step: dict[str, Any], sender: str = "") -> str:
        """Send a step without waiting for a block."""
        request = {
            "from": sender or self.payer,
            "to": step["to"],
            "value": step["value"],
            "data": step["data"],
            "gas": hex(3_000_000),
        }
        return await self.chain.ask("eth_sendTransaction", request)

    async def pay(self, session: Session) -> str:
        """Pay like a wallet; return the hash of the payment's transaction."""
        view = await self.view(session)
        tx_hash = ""
        for step in view["steps"]:
            if step["when"] == "always" or await self._needs(step["when"], view):
                tx_hash = await self.send(step)
        return tx_hash

    async def _needs(self, when: str, view: dict[str, Any]) -> bool:
        """Return whether an approval is needed. The page checks this in the same way."""
        check = view["checks"]["allowance"]
        data = check["data"].replace("{payer}", self.payer[2:])
        allowance = await self.chain.number("eth_call", {"to": check["to"], "data": data}, "latest")
        short = allowance < int(view["amount_smallest_unit"])
        return short and (allowance > 0 or when == "allowance_lt_amount")

    async def allow(self, contract: str | None = None) -> None:
        """Allow a contract to spend all of the payer's tokens."""
        spender = bytes.fromhex((contract or self.deployment.contract_address)[2:])
        for token in self.deployment.tokens:
            if not token.native:
                data = f"0x{abi.encode_approve(spender, 2**200).hex()}"
                await self.send({"to": token.address, "value": "0x0", "data": data})

    async def pay_otherwise(self, session: Session, **changes: Any) -> str:
        """Pay a session with a different amount, token, uuid, deadline, contract or sender."""
        return await self.send(self.call(session, **changes), changes.get("sender", ""))

    def call(self, session: Session, **changes: Any) -> dict[str, Any]:
        """Encode a session's payment, optionally with wrong values."""
        token = self.deployment.token(changes.get("token", session.quote.token))
        amount = changes.get("amount", session.quote.total_minor)
        data = abi.encode_pay(
            changes.get("uuid", pay_uuid(session)),
            bytes.fromhex(token.address[2:]),
            amount,
            changes.get("deadline", 2**40),
        )
        return {
            "to": changes.get("contract", self.deployment.contract_address),
            "value": hex(amount if token.native else 0),
            "data": f"0x{data.hex()}",
        }

    async def post(self, session: Session, tx_hash: str, step: str = "pay") -> None:
        """Post a transaction's hash, as the page does."""
        async with self.world.database.transaction() as tx:
            assert await add_posted_hash(tx, session.id, bytes.fromhex(tx_hash[2:]), step)

    async def mine(self, count: int = 3) -> None:
        """Mine blocks, so that earlier blocks become final."""
        await self.chain.ask("anvil_mine", hex(count))

    async def reorg(self, depth: int) -> None:
        """Replace this many blocks with empty blocks."""
        await self.chain.ask("anvil_reorg", depth, [])

    async def height(self) -> int:
        return await self.chain.number("eth_blockNumber")

    async def pass_time(self, seconds: int) -> None:
        """Advance the service's and the chain's clocks."""
        await self.move_clock(seconds)
        await self.keep_time()

    async def keep_time(self) -> None:
        """Mine a block with the service's current time, because a reorg also reverts the time."""
        [row] = await self.world.rows("SELECT extract(epoch FROM clock())::bigint + 1 AS now")
        latest = await self.chain.ask("eth_getBlockByNumber", "latest", False)
        if int(latest["timestamp"], 16) < row["now"]:
            await self.chain.ask("evm_setNextBlockTimestamp", row["now"])
        await self.mine(1)

    async def move_clock(self, seconds: int) -> None:
        """Advance only the service's clock."""
        self.moved_s += seconds
        await self.world.move_clock(self.moved_s)

    async def catch_up(self) -> None:
        """Run the watcher until it has read all final blocks."""
        context = self.world.service.watch_context
        row = await chain_store.get_chain(context.database, self.slug)
        assert row is not None
        self.clock.skipped_s += 60
        while await watch_once(context, row, self.reader):
            pass

    async def decide(self) -> None:
        """Run all due expiries and inquiries."""
        service, patience_s = self.world.service, self.world.service.settings.closing_patience_s
        database = self.world.database
        while True:
            async with database.transaction() as tx:
                await expire_pending(tx, 500)
            async with database.transaction() as tx:
                await expire_processing(tx, 500, patience_s)
            asks = await session_store.claim_due(database, 500, 60.0, [])
            for ask in asks:
                await service.session_inquirer.inquire(ask)
            if not asks:
                return

    async def turn(self) -> None:
        """Run the watcher, and then everything that is due."""
        await self.catch_up()
        await self.decide()

    async def final(self, blocks: int = 3) -> None:
        """Make all mined blocks final, and process them."""
        await self.mine(blocks)
        await self.turn()

    async def status(self, payment: Payment) -> str:
        return await self.world.status(payment)

    async def reason(self, payment: Payment) -> str | None:
        return (await self.world.read(payment)).payment.failure_reason

    async def dispositions(self) -> list[str]:
        """List the dispositions of the final logs, in chain order."""
        rows = await self.world.rows(
            "SELECT disposition FROM chain_receipt ORDER BY block, log_index"
        )
        return [row["disposition"] for row in rows]

    async def cases(self) -> list[str]:
        """List the kinds of all cases in alphabetical order, including cases without a merchant."""
        rows = await self.world.rows("SELECT kind FROM money_case ORDER BY kind")
        return [row["kind"] for row in rows]

    async def cursor(self) -> ChainCursor:
        result = await chain_store.get_cursor(self.world.database, self.slug)
        assert result is not None
        return result

    def token(self, symbol: str) -> str:
        return self.deployment.token(symbol).address


@asynccontextmanager
async def chain_world(
    world: World,
    url: str,
    slug: str = SLUG,
    endpoints: Sequence[str] = (),
    confirmations: int = 2,
) -> AsyncIterator[ChainWorld]:
    """Deploy our contract on a chain, and offer its tokens as methods of the world's merchant.

    The watcher reads the chain through `endpoints`, if given.
    """
    async with open_chain(url) as chain:
        deployment = await deploy(chain, PLANS[slug])
        account_id = await _provision(world, slug, deployment, confirmations)
        clock = SkippingClock()
        reader = RpcChainReader(slug, endpoints or [url], config_of(slug, confirmations), clock)
        ground = ChainWorld(world, chain, deployment, reader, account_id, slug=slug, clock=clock)
        ground.payer = (await chain.ask("eth_accounts"))[5]
        await fund(chain, deployment, ground.payer)
        for token in deployment.tokens:
            if token.symbol != "USDC":
                ground.methods[token.symbol] = await offer(world, account_id, token.symbol)
        try:
            yield ground
        finally:
            await reader.close()


def config_of(slug: str, confirmations: int = 2) -> ReaderConfig:
    """Return the finality settings of a development chain."""
    by_count = slug == SLUG
    return ReaderConfig(
        network_id=PLANS[slug].network_id,
        finality=Finality.CONFIRMATIONS if by_count else Finality.FINALIZED,
        confirmations=confirmations if by_count else 0,
    )


async def _provision(world: World, slug: str, deployment: Deployment, confirmations: int) -> int:
    if slug == SLUG:
        how = SetChain(chain=slug, finality="confirmations", confirmations=confirmations)
        await world.perform(how)
    contract = await world.perform(
        AddContract(
            chain=slug,
            address=deployment.contract_address,
            receiver=deployment.receiver,
            deployed_block=deployment.deployed_block,
        )
    )
    await chain_watch_store.mark_watched(world.database, slug, 0, WATCHED_S)
    for token in deployment.tokens:
        await world.perform(
            SetToken(
                chain=slug,
                symbol=token.symbol,
                address=token.address,
                minimum=token.minimum,
            )
        )
    return contract.account_id


async def offer(world: World, account_id: int, symbol: str) -> int:
    method = await world.perform(
        AddPaymentMethod(
            merchant_id=world.merchant_id,
            account_id=account_id,
            kind="onchain",
            label=f"{symbol} on the chain",
            currencies=[symbol],
            token=symbol,
        )
    )
    return method.id


def pay_uuid(session: Session) -> bytes:
    """Return the uuid that identifies a session on its chain."""
    return bytes.fromhex((session.reference or "")[2:])


def session_path(session: Session) -> str:
    return f"/v1/onchain/sessions/{ids.format_id(ids.SESSION, session.id)}"
