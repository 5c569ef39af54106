"""Random deposits with random endpoint faults: nothing is lost or invented.

`CHAIN_SEEDS=50` selects the long form.
"""

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from payintent.accounting.ledger_check_store import find_differences
from payintent.core.errors import ChainUnavailableError, RefusedError
from payintent.evm.abi import encode_balance_of
from payintent.evm.event_logs import TRANSFER
from payintent.payments.model import Payment, Session
from payintent_sandbox.chains.anvil import Anvil
from payintent_sandbox.chains.anvil_binary import Binary
from tests.onchain.test_chaos import CONFIRMATIONS, MIXES, REORG_MAX, TTL_S
from tests.support.chain_comparison import compare_due, newest_run
from tests.support.deposits import DepositGround, add_factory
from tests.support.fault_rpc import Faults, FaultyNode
from tests.support.onchain import chain_world
from tests.support.world import World

pytestmark = pytest.mark.full

SEEDS = int(os.environ.get("CHAIN_SEEDS", "3"))
ROUNDS = 80
ACTIONS = {"bill": 6, "send": 12, "sweep": 4, "change": 1, "mine": 6, "reorg": 2, "pass": 1}


@dataclass
class History:
    """A random history of deposits."""

    deposits: DepositGround
    nodes: list[FaultyNode]
    chance: random.Random
    may_miss: bool  # fewer than two endpoints report all logs
    bills: dict[UUID, tuple[Payment, Session]] = field(default_factory=dict)

    async def round(self) -> None:
        names, weights = zip(*ACTIONS.items(), strict=True)
        [name] = self.chance.choices(names, weights)
        for node in self.nodes:
            if node.faults.lag:
                node.faults = replace(node.faults, lag=self.chance.randint(1, 3))
        await getattr(self, f"do_{name}")()
        if self.chance.random() < 0.7:
            await self.poll()

    async def poll(self) -> None:
        with suppress(ChainUnavailableError):
            await self.deposits.ground.catch_up()
        await self.deposits.ground.decide()

    async def do_bill(self) -> None:
        payment, session = await self.deposits.bill(expires_in_s=self.chance.choice(TTL_S))
        self.bills[session.id] = (payment, session)

    async def do_send(self) -> None:
        if self.bills:
            _, session = self.chance.choice(list(self.bills.values()))
            total = session.quote.total_minor
            part = self.chance.choice([total, total // 2, total - total // 2, 3, total + 7])
            await self.deposits.transfer(session, part)

    async def do_sweep(self) -> None:
        """Sweep some addresses, with and without money, as any account can."""
        if self.bills:
            sessions = [session for _, session in self.bills.values()]
            count = self.chance.randint(1, min(4, len(sessions)))
            await self.deposits.sweep(*self.chance.sample(sessions, count))

    async def do_change(self) -> None:
        if self.bills:
            payment, _ = self.chance.choice(list(self.bills.values()))
            with suppress(RefusedError):
                world = self.deposits.ground.world
                selected = await world.select(payment, self.deposits.methods["USDT"])
                self.bills[selected.session.id] = (payment, selected.session)

    async def do_mine(self) -> None:
        await self.deposits.ground.mine(self.chance.randint(1, 5))

    async def do_reorg(self) -> None:
        await self.deposits.ground.reorg(self.chance.randint(1, REORG_MAX))

    async def do_pass(self) -> None:
        await self.deposits.ground.pass_time(self.chance.randint(60, 600))

    async def end(self) -> None:
        """Remove all faults, and run until everything has ended."""
        ground = self.deposits.ground
        for node in self.nodes:
            node.faults = Faults()
        await ground.mine(CONFIRMATIONS + 1)
        await self.poll()
        await ground.pass_time(max(TTL_S) + 60)
        await ground.mine(CONFIRMATIONS + 1)
        await self.poll()
        await ground.move_clock(3_601)  # trigger the long recheck
        await self.poll()
        await self.poll()
        await self.sweep_most()

    async def sweep_most(self) -> None:
        """Sweep all addresses except two, so that swept and unswept addresses are checked."""
        sessions = [session for _, session in self.bills.values()]
        await self.deposits.sweep(*sessions[2:])
        await self.deposits.ground.mine(CONFIRMATIONS + 1)
        await self.poll()


async def true_transfers(history: History) -> dict[tuple[str, int], Any]:
    """Read all final transfers to our addresses directly from the chain."""
    ground = history.deposits.ground
    addresses = {history.deposits.address(session) for _, session in history.bills.values()}
    search = {
        "fromBlock": "0x0",
        "toBlock": hex((await ground.cursor()).block),
        "address": ground.token("USDT"),
        "topics": [f"0x{TRANSFER.hex()}"],
    }
    logs = await ground.chain.ask("eth_getLogs", search)
    return {
        (log["transactionHash"], int(log["logIndex"], 16)): log
        for log in logs
        if f"0x{log['topics'][2][-40:]}" in addresses
    }


async def find_faults(history: History) -> list[str]:
    """Compare the stored receipts with the chain, and the captures with the transfers."""
    world = history.deposits.ground.world
    rows = await world.rows("SELECT * FROM chain_receipt WHERE disposition = 'deposit'")
    stored = {(f"0x{row['tx_hash'].hex()}", row["log_index"]): row for row in rows}
    truth = await true_transfers(history)
    faults = [f"lost {key}" for key in truth.keys() - stored.keys()]
    faults += [
        f"phantom {key}"
        for key, row in stored.items()
        if key not in truth or f"0x{row['block_hash'].hex()}" != truth[key]["blockHash"]
    ]
    for payment, session in history.bills.values():
        faults += await find_session_faults(world, payment, session, may_miss=history.may_miss)
    return faults


async def find_book_faults(history: History) -> list[str]:
    """Compare each address's balance in the books with its balance on the chain."""
    ground = history.deposits.ground
    differences = await find_differences(ground.world.database)
    faults = [f"ledger: {difference}" for difference in differences]
    for _, session in history.bills.values():
        [row] = await ground.world.rows(
            "SELECT coalesce(sum(amount), 0)::text AS amount FROM chain_receipt"
            " WHERE session_id = $1 AND disposition = 'deposit' AND deposit_sweep_id IS NULL",
            session.id,
        )
        owner = bytes.fromhex(history.deposits.address(session)[2:])
        call = {"to": ground.token("USDT"), "data": f"0x{encode_balance_of(owner).hex()}"}
        balance = await ground.chain.number("eth_call", call, "latest")
        if balance != int(row["amount"]):
            faults.append(f"{session.id}: {row['amount']} in the books, {balance} at the address")
    return faults


async def find_session_faults(
    world: World, payment: Payment, session: Session, *, may_miss: bool
) -> list[str]:
    receipts = await world.rows(
        "SELECT *, deposit_capture_id IS NULL AS loose FROM chain_receipt WHERE session_id = $1",
        session.id,
    )
    captures = await world.rows("SELECT * FROM capture WHERE session_id = $1", session.id)
    received = sum(int(row["amount"]) for row in receipts)
    captured = sum(int(row["amount_minor"]) for row in captures)
    current = (await world.read(payment)).payment
    timely = sum(int(row["amount"]) for row in receipts if row["mined_at"] <= current.expires_at)
    faults = [f"{session.id}: loose {row['tx_hash'].hex()}" for row in receipts if row["loose"]]
    if received != captured:
        faults.append(f"{session.id}: received {received}, captured {captured}")
    is_paid = any(row["credited"] for row in captures)
    is_enough = current.session_id == session.id and timely >= session.quote.total_minor
    # If fewer than two endpoints report all logs, a deposit can be detected late, and opens a case.
    if (is_paid and not is_enough) or (is_enough and not is_paid and not may_miss):
        faults.append(f"{session.id}: {current.status} {timely} of {session.quote.total_minor}")
    return faults


@pytest.fixture
def long_chain_url(anvil: Binary, tmp_path: Path) -> Iterator[str]:
    """The URL of a chain that keeps all its logs."""
    chain = Anvil(612_055, log=tmp_path / "anvil.log", binary=anvil, blocks_kept=None)
    yield chain.start()
    chain.stop()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_endpoint_faults_do_not_lose_or_invent_deposits(
    world: World, long_chain_url: str, seed: int
) -> None:
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(
                FaultyNode(long_chain_url, seed=seed + number, faults=faults)
            )
            for number, faults in enumerate(MIXES[seed % len(MIXES)])
        ]
        endpoints = [node.url for node in nodes]
        ground = await stack.enter_async_context(
            chain_world(world, long_chain_url, endpoints=endpoints, confirmations=CONFIRMATIONS)
        )
        deposits = await add_factory(ground, "USDT")
        await ground.mine(CONFIRMATIONS + 1)  # so that a reorg cannot revert the deployments
        honest = sum(not node.faults.drop_logs for node in nodes)
        history = History(deposits, nodes, random.Random(seed), honest < min(2, len(nodes)))
        for _ in range(ROUNDS):
            await history.round()
        await history.end()
        assert await find_faults(history) == []
        assert await find_book_faults(history) == []
        await compare_due(ground)
        assert (await newest_run(ground, deposits.account_id)).run.status == "matched"
        rows = await world.rows("SELECT status FROM payment")
        counts = Counter(row["status"] for row in rows)
        assert not counts["PROCESSING"]
        transfers = await true_transfers(history)
        assert transfers
        cases = Counter(await ground.cases())
        print(f"\nseed {seed}: {len(transfers)} transfers, {dict(counts)}, {dict(cases)}")
