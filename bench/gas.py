"""`python -m bench.gas`: what the gateway contract's calls cost in gas, on a chain of its own."""

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.machine import print_machine
from payintent_sandbox.chains.anvil import Anvil
from payintent_sandbox.chains.anvil_binary import AnvilError
from payintent_sandbox.chains.contracts import GATEWAY, PLAIN_TOKEN, load
from payintent_sandbox.chains.deploy import (
    NATIVE,
    ChainPlan,
    Deployment,
    PlannedToken,
    deploy,
    fund,
)
from payintent_sandbox.chains.rpc import DevChainRpc, open_chain

FAR = 2**40
PLAN = ChainPlan(
    slug="gas",
    network_id=612_055,
    tokens=(
        PlannedToken(
            symbol="USDT", address="", decimals=6, approve_zero_first=True, minimum=10_000
        ),
        PlannedToken(
            symbol="USDC", address="", decimals=6, approve_zero_first=False, minimum=10_000
        ),
        PlannedToken(
            symbol="COIN", address=NATIVE, decimals=18, approve_zero_first=False, minimum=1
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Gas of one call when it is the first of its kind, and of every later one."""

    name: str
    first: int
    later: int | None = None


@dataclass(frozen=True, slots=True)
class Meter:
    """One chain with the contract on it, and people with money."""

    chain: DevChainRpc
    deployment: Deployment
    buyer: str
    newcomer: str  # owns nothing yet

    async def all(self) -> list[Cost]:
        """Measure every call once as the first of its kind, and once later."""
        usdt, usdc, coin = self.deployment.tokens
        return [
            await self._deployment(),
            await self._twice("approve USDT", lambda number: self._approve(usdt, number)),
            await self._twice("approve USDC", lambda number: self._approve(usdc, number)),
            await self._twice("pay USDT", lambda number: self._pay(usdt, number)),
            await self._twice("pay USDC", lambda number: self._pay(usdc, number)),
            await self._twice("pay the native coin", lambda number: self._pay(coin, number)),
            await self._twice("refund USDT", lambda number: self._refund(usdt, number)),
            await self._twice("refund the native coin", lambda number: self._refund(coin, number)),
            await self._twice("sweep USDT", self._sweep),
            Cost("pay too late (mined, reverted)", await self._pay_too_late(usdt)),
        ]

    async def _twice(self, name: str, call: Any) -> Cost:
        return Cost(name, await call(1), await call(2))

    async def _deployment(self) -> Cost:
        block = hex(self.deployment.deployed_block)
        [tx_hash] = (await self.chain.ask("eth_getBlockByNumber", block, False))["transactions"]
        receipt = await self.chain.receipt(tx_hash)
        return Cost(f"deploy with {len(PLAN.tokens)} tokens", int(receipt["gasUsed"], 16))

    async def _approve(self, token: PlannedToken, number: int) -> int:
        if number > 1 and token.approve_zero_first:
            await self._allow(token, 0)
        return await self._allow(token, 10**12)

    async def _allow(self, token: PlannedToken, amount: int) -> int:
        contract = self.deployment.contract_address
        data = load(PLAIN_TOKEN).call_data("approve", contract, amount)
        return await self._send(self.buyer, token.address, data)

    async def _pay(self, token: PlannedToken, number: int) -> int:
        value = 10**6 if token.native else 0
        return await self._call(self.buyer, "pay", *_pay(token, number), FAR, value=value)

    async def _refund(self, token: PlannedToken, number: int) -> int:
        refund_id = _id(number + 100 * token.native)
        arguments = (_id(1), refund_id, token.address, self.newcomer, 10**6)
        value = 10**6 if token.native else 0
        sender = self.deployment.refunder
        return await self._call(sender, "refund", *arguments, value=value)

    async def _sweep(self, number: int) -> int:
        token = self.deployment.token("USDT")
        contract = self.deployment.contract_address
        stray = load(PLAIN_TOKEN).call_data("mint", contract, number)
        await self._send(self.buyer, token.address, stray)
        return await self._call(self.buyer, "sweep", token.address)

    async def _pay_too_late(self, token: PlannedToken) -> int:
        data = load(GATEWAY).call_data("pay", *_pay(token, 3), 1)
        place = self.deployment.contract_address
        asked = {"from": self.buyer, "to": place, "data": data, "gas": hex(300_000)}
        receipt = await self.chain.receipt(await self.chain.ask("eth_sendTransaction", asked))
        return int(receipt["gasUsed"], 16)

    async def _call(self, sender: str, function: str, *arguments: Any, value: int = 0) -> int:
        data = load(GATEWAY).call_data(function, *arguments)
        return await self._send(sender, self.deployment.contract_address, data, value)

    async def _send(self, sender: str, to: str, data: str, value: int = 0) -> int:
        return int((await self.chain.send(sender, to, data, value))["gasUsed"], 16)


def _pay(token: PlannedToken, number: int) -> tuple[bytes, str, int]:
    return _id(number), token.address, 10**6


def _id(number: int) -> bytes:
    """Make an id without zero bytes, which would cost less gas than most ids do."""
    return bytes([0x77]) * 15 + bytes([number])


async def measure() -> list[Cost]:
    """Measure all calls on a fresh chain (AnvilError)."""
    with tempfile.TemporaryDirectory(prefix="payintent-gas-") as folder:
        chain = Anvil(PLAN.network_id, log=Path(folder) / "anvil.log")
        try:
            async with open_chain(chain.start()) as client:
                return await _measure(client)
        finally:
            chain.stop()


async def _measure(chain: DevChainRpc) -> list[Cost]:
    deployment = await deploy(chain, PLAN)
    buyer, newcomer = (await chain.ask("eth_accounts"))[3:5]
    await fund(chain, deployment, buyer)
    return await Meter(chain, deployment, buyer, newcomer).all()


def show(console: Console) -> None:
    """Print the costs, or why there are none."""
    try:
        costs = asyncio.run(measure())
    except AnvilError as error:
        console.print(f"no gas figures: {error}")
        return
    table = Table(title="gas of the gateway contract")
    for name in ("", "first", "later"):
        table.add_column(name, justify="right" if name else "left")
    for one in costs:
        table.add_row(one.name, f"{one.first:,}", f"{one.later:,}" if one.later else "")
    console.print(table)


if __name__ == "__main__":
    console = Console(width=100)
    show(console)
    print_machine(console)
