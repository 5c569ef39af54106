"""`python -m bench.gas`: measure the gas used by calls to our contracts on a development chain."""

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.table import Table

from bench.machine import print_machine
from payintent_sandbox.chains.anvil import Anvil
from payintent_sandbox.chains.anvil_binary import AnvilError
from payintent_sandbox.chains.contracts import (
    DEPOSIT_FACTORY,
    DEPOSIT_FORWARDER,
    GATEWAY,
    PLAIN_TOKEN,
    load,
)
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
SWEPT_TOGETHER = (1, 10, 100, 200)  # addresses per transaction; 200 is the maximum
SWEEP_GAS_MAX = 29_000_000
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
    """The gas used by the first call of a kind, and by each later call."""

    name: str
    first: int
    later: int | None = None


@dataclass(frozen=True, slots=True)
class Meter:
    """A chain with the contract and funded accounts."""

    chain: DevChainRpc
    deployment: Deployment
    buyer: str
    newcomer: str  # has no tokens or coins yet

    async def all(self) -> list[Cost]:
        """Measure the first call and a later call of each kind."""
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
        transaction = {"from": self.buyer, "to": place, "data": data, "gas": hex(300_000)}
        receipt = await self.chain.receipt(await self.chain.ask("eth_sendTransaction", transaction))
        return int(receipt["gasUsed"], 16)

    async def _call(self, sender: str, function: str, *arguments: Any, value: int = 0) -> int:
        data = load(GATEWAY).call_data(function, *arguments)
        return await self._send(sender, self.deployment.contract_address, data, value)

    async def _send(self, sender: str, to: str, data: str, value: int = 0) -> int:
        return int((await self.chain.send(sender, to, data, value))["gasUsed"], 16)


@dataclass(frozen=True, slots=True)
class DepositMeter:
    """A chain with a deposit factory, and a buyer whose wallet sends a token to its addresses."""

    chain: DevChainRpc
    receiver: str
    buyer: str
    token: str

    async def measure(self) -> list[Cost]:
        """Measure the deployment, a deposit, and sweeps of new and known addresses."""
        forwarder = await self._create(DEPOSIT_FORWARDER, self.receiver)
        factory = await self._create(DEPOSIT_FACTORY, forwarder["contractAddress"])
        address = factory["contractAddress"]
        transfer = await self._transfer(await self._derive_address(address, _deposit_uuids(1)[0]))
        sweeps = [
            Cost(
                f"sweep {count} addresses (per address)" if count > 1 else "sweep an address",
                await self._sweep(address, count),
                await self._sweep(address, count),
            )
            for count in SWEPT_TOGETHER
        ]
        return [
            Cost("deploy the forwarder", int(forwarder["gasUsed"], 16)),
            Cost("deploy the factory", int(factory["gasUsed"], 16)),
            Cost("transfer a token to an address", transfer),
            *sweeps,
        ]

    async def _create(self, name: str, argument: str) -> dict[str, Any]:
        return await self.chain.send(self.buyer, None, load(name).creation_code(argument))

    async def _transfer(self, address: str) -> int:
        data = load(PLAIN_TOKEN).call_data("transfer", address, 10**6)
        return int((await self.chain.send(self.buyer, self.token, data))["gasUsed"], 16)

    async def _derive_address(self, factory: str, uuid: bytes) -> str:
        data = load(DEPOSIT_FACTORY).call_data("address_of", uuid)
        word = await self.chain.ask("eth_call", {"to": factory, "data": data}, "latest")
        return f"0x{word[-40:]}"

    async def _sweep(self, factory: str, count: int) -> int:
        """Send a deposit to `count` addresses and sweep them; return the gas per address."""
        uuids = _deposit_uuids(count)
        for address in await asyncio.gather(
            *(self._derive_address(factory, uuid) for uuid in uuids)
        ):
            await self._transfer(address)
        contract = load(DEPOSIT_FACTORY)
        data = contract.call_data("sweep_many", uuids, self.token)
        if count == 1:
            data = contract.call_data("sweep", uuids[0], self.token)
        call = {"from": self.buyer, "to": factory, "data": data, "gas": hex(SWEEP_GAS_MAX)}
        receipt = await self.chain.receipt(await self.chain.ask("eth_sendTransaction", call))
        return int(receipt["gasUsed"], 16) // count


def _deposit_uuids(count: int) -> list[bytes]:
    """Return uuids that differ for every count and have no more zero bytes than usual."""
    return [UUID(f"0192f0c4-77{count:02x}-7abc-8def-7711223344{n:02x}").bytes for n in range(count)]


def _pay(token: PlannedToken, number: int) -> tuple[bytes, str, int]:
    return _id(number), token.address, 10**6


def _id(number: int) -> bytes:
    """Return an id without zero bytes, because zero bytes cost less gas."""
    return bytes([0x77]) * 15 + bytes([number])


@dataclass(frozen=True, slots=True)
class GasReport:
    gateway: list[Cost]
    deposits: list[Cost]


async def measure() -> GasReport:
    """Measure all calls on a new chain. Raises `AnvilError`."""
    with tempfile.TemporaryDirectory(prefix="payintent-gas-") as folder:
        chain = Anvil(PLAN.network_id, log=Path(folder) / "anvil.log")
        try:
            async with open_chain(chain.start()) as client:
                return await _measure(client)
        finally:
            chain.stop()


async def _measure(chain: DevChainRpc) -> GasReport:
    deployment = await deploy(chain, PLAN)
    buyer, newcomer = (await chain.ask("eth_accounts"))[3:5]
    await fund(chain, deployment, buyer)
    gateway = await Meter(chain, deployment, buyer, newcomer).all()
    token = deployment.token("USDT").address
    deposits = await DepositMeter(chain, deployment.receiver, buyer, token).measure()
    return GasReport(gateway, deposits)


def show(console: Console) -> None:
    """Print the costs, or the reason why they could not be measured."""
    try:
        report = asyncio.run(measure())
    except AnvilError as error:
        console.print(f"no gas figures: {error}")
        return
    print_report(console, report)


def print_report(console: Console, report: GasReport) -> None:
    console.print(_build_table("gas used by the gateway contract", report.gateway))
    console.print(_build_table("gas used by the deposit contracts", report.deposits))


def _build_table(title: str, costs: list[Cost]) -> Table:
    table = Table(title=title)
    for name in ("", "first", "later"):
        table.add_column(name, justify="right" if name else "left")
    for cost in costs:
        table.add_row(cost.name, f"{cost.first:,}", f"{cost.later:,}" if cost.later else "")
    return table


if __name__ == "__main__":
    console = Console(width=100)
    show(console)
    print_machine(console)
