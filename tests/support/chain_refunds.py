"""Setup for on-chain refund tests: a signer that can fail, and passes of the refund sender."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

import aiohttp
from aiohttp import web

from payintent.evm import abi
from payintent.evm.refund_sender import RefundSenders, RpcRefundSender, open_refund_senders
from payintent.onchain.operations import SetChain
from payintent.payments.model import Payment, Session
from payintent.refunds import store as refund_store
from payintent.refunds.create import CreateRefundRequest
from payintent.refunds.model import Refund
from tests.support.http_server import clean_up
from tests.support.onchain import ChainWorld

COIN = 10**18


class Mood(StrEnum):
    """The behaviour of a signer for a send request."""

    SENDS = "sends"
    LOSES = "loses"  # it sends, and its response is lost
    SILENT = "silent"  # it reads the request and does nothing
    REFUSES = "refuses"  # it refuses and does not send


@dataclass
class Signer:
    """A signer in front of a development chain, which has its accounts' keys."""

    upstream: str
    mood: Mood = Mood.SENDS
    away: bool = False  # no request gets a response
    sent: list[str] = field(default_factory=list[str])  # hashes
    url: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        call = await request.json()
        if self.away or (call["method"] == "eth_sendTransaction" and self.mood is Mood.SILENT):
            return _cut(request)
        if call["method"] == "eth_sendTransaction" and self.mood is Mood.REFUSES:
            error = {"code": -32_000, "message": "authentication needed: password or unlock"}
            return web.json_response({"jsonrpc": "2.0", "id": call["id"], "error": error})
        async with aiohttp.ClientSession() as client:
            response = await (await client.post(self.upstream, json=call)).json()
        if call["method"] == "eth_sendTransaction":
            self.sent.append(response["result"])
            if self.mood is Mood.LOSES:
                return _cut(request)
        return web.json_response(response)


def _cut(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@dataclass
class RefundWorld:
    """A chain with our contract, a signer, and the refund senders."""

    ground: ChainWorld
    signer: Signer
    refund_senders: RefundSenders

    @property
    def refunder(self) -> str:
        """The account that sends refunds. The contract may spend its money."""
        return self.ground.deployment.refunder

    async def paid(self, symbol: str = "NATIVED") -> tuple[Payment, Session]:
        """Create a payment of 25.50 USD, and pay it from the account that has all the money."""
        payment, session = await self.ground.bill(symbol)
        await self.ground.pay(session)
        await self.ground.final()
        assert await self.ground.status(payment) == "PAID"
        return payment, session

    async def ask(self, payment: Payment, amount: str | None = None, **more: Any) -> Refund:
        """Request a refund as the merchant."""
        request = CreateRefundRequest(
            merchant_id=payment.merchant_id,
            payment_id=payment.id,
            key=uuid4(),
            amount=amount,
            **more,
        )
        return (await self.ground.world.service.refund_creator.create(request)).refund

    async def turn(self) -> None:
        """Process every unfinished refund once."""
        service = self.ground.world.service
        self.ground.clock.skipped_s += 60  # tests do not wait for a signer's back-off
        await self.ground.world.rows(
            "UPDATE refund SET next_at = clock() WHERE next_at IS NOT NULL"
        )
        for due in await refund_store.claim_due(self.ground.world.database, 100, 60.0, []):
            await service.refund_sender.process(due)

    async def read(self, refund: Refund) -> Refund:
        stored_refund = await refund_store.get(self.ground.world.database, refund.id)
        assert stored_refund is not None
        return stored_refund

    async def read_state(self, refund: Refund) -> tuple[str, str]:
        """Return a refund's status and step."""
        stored_refund = await self.read(refund)
        return stored_refund.status.value, stored_refund.step.value

    async def balance(self, token: str, owner: str) -> int:
        """Read an account's balance from the chain."""
        place = self.ground.deployment.token(token)
        if place.native:
            return await self.ground.chain.number("eth_getBalance", owner, "latest")
        data = f"0x{abi.encode_balance_of(bytes.fromhex(owner[2:])).hex()}"
        request = {"to": place.address, "data": data}
        return await self.ground.chain.number("eth_call", request, "latest")

    async def logs(self) -> list[str]:
        """List the dispositions of the final refund logs, in chain order."""
        rows = await self.ground.world.rows(
            "SELECT disposition FROM chain_refund ORDER BY block, log_index"
        )
        return [row["disposition"] for row in rows]

    async def by_hand(self, refund_id: UUID, amount: int, **changes: Any) -> str:
        """Call the contract's `refund` without the service; return the hash."""
        place = self.ground.deployment.token(changes.get("token", "NATIVED"))
        data = abi.encode_refund(
            changes.get("uuid", bytes(16)),
            refund_id.bytes,
            bytes.fromhex(place.address[2:]),
            bytes.fromhex(changes.get("to", self.ground.payer)[2:]),
            amount,
        )
        step = {
            "to": changes.get("contract", self.ground.deployment.contract_address),
            "value": hex(amount if place.native else 0),
            "data": f"0x{data.hex()}",
        }
        return await self.ground.send(step, changes.get("sender", self.refunder))

    async def revert(self, session: Session) -> None:
        """Revert a refund's transaction, and make the revert final."""
        self.signer.mood = Mood.SILENT
        await self.turn()
        self.signer.mood = Mood.SENDS
        reverted = await self.ground.pay_otherwise(session, deadline=1)
        await self.ground.world.rows(
            "UPDATE chain_refund_try SET tx_hash = $1", bytes.fromhex(reverted[2:])
        )
        await self.ground.final()
        await self.turn()

    async def accounts(self) -> Sequence[str]:
        return await self.ground.chain.ask("eth_accounts")


@asynccontextmanager
async def signing(upstream: str) -> AsyncIterator[Signer]:
    """Run a signer in front of a development chain."""
    signer = Signer(upstream)
    app = web.Application()
    app.router.add_post("/{path:.*}", signer.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    [(host, port)] = [address[:2] for address in runner.addresses]
    signer.url = f"http://{host}:{port}/a-key-that-is-secret"
    try:
        yield signer
    finally:
        await clean_up(runner)


@asynccontextmanager
async def refunding(
    ground: ChainWorld, refund_senders: dict[str, RpcRefundSender], urls: Sequence[str] = ()
) -> AsyncIterator[RefundWorld]:
    """Set up refunds on a chain. `refund_senders` are the service's senders."""
    async with signing(ground.chain.url) as signer:
        endpoints = {ground.slug: list(urls) or [ground.chain.url]}
        result = open_refund_senders({ground.slug: signer.url}, endpoints, ground.clock)
        refund_senders |= result
        await ground.world.perform(SetChain(chain=ground.slug, refunder=ground.deployment.refunder))
        yield RefundWorld(ground, signer, result)
        await result.close()
