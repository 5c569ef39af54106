"""Random chain histories with random endpoint faults: nothing is lost or invented.

`CHAIN_SEEDS=50` selects the long form, which prints the results of each seed.
"""

import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from payintent.core.errors import ChainUnavailableError, RefusedError
from payintent.evm.event_logs import PAID
from payintent.payments.model import Payment, Session
from payintent_sandbox.chains.anvil import Anvil
from payintent_sandbox.chains.anvil_binary import Binary
from payintent_sandbox.chains.rpc import DevChainError
from tests.support.fault_rpc import Faults, FaultyNode
from tests.support.onchain import ChainWorld, chain_world
from tests.support.world import World

pytestmark = pytest.mark.full

SEEDS = int(os.environ.get("CHAIN_SEEDS", "3"))
ROUNDS = 120
CONFIRMATIONS = 12
REORG_MAX = 10  # blocks; final blocks are never reorganized
TTL_S = (900, 1800, 7200)

FLAKY = Faults(broken=0.2)
LIMITED = Faults(range_max=5)
LATE = Faults(lag=2)
DROPS = Faults(drop_logs=0.3)
FORGES = Faults(forge_logs=0.2)


def all_of(*faults: Faults) -> Faults:
    """Combine faults."""
    changes = [
        {
            name: getattr(fault, name)
            for name in fault.__slots__
            if getattr(fault, name) != getattr(Faults(), name)
        }
        for fault in faults
    ]
    return replace(
        Faults(), **{name: value for change in changes for name, value in change.items()}
    )


#: The endpoints of a chain, and the faults of each.
MIXES = (
    (all_of(FLAKY, LIMITED, LATE, DROPS), all_of(FLAKY, FORGES), all_of(FLAKY, LATE)),
    (DROPS, DROPS, Faults()),
    (all_of(FLAKY, LIMITED),),
    (FORGES, Faults()),
    (all_of(FLAKY, DROPS, LATE), Faults()),
    (Faults(),),
    (LATE, LATE),
    (DROPS,),
    (FORGES,),
    (FORGES, Faults(), all_of(FLAKY, LIMITED)),
    (all_of(FLAKY, LIMITED, LATE, DROPS), all_of(FLAKY, LATE), all_of(FLAKY, DROPS)),
    (DROPS, Faults(), Faults()),
    (all_of(LIMITED, DROPS), all_of(FORGES, LATE), Faults()),
    (all_of(LIMITED, Faults(null_receipts=0.3, null_blocks=0.2)), Faults(batch_max=3)),
)
ACTIONS = {
    "bill": 6,
    "exact": 9,
    "under": 1,
    "over": 1,
    "grief": 1,
    "wrong_token": 1,
    "unknown": 1,
    "repeat": 1,
    "change": 1,
    "post": 2,
    "mine": 6,
    "reorg": 2,
    "pass": 1,
}


@dataclass
class Bill:
    """A session and its transactions."""

    payment: Payment
    session: Session
    tx_hashes: list[str] = field(default_factory=list)
    sightings_at_end: set[str] = field(default_factory=set)  # if the session ended without money


@dataclass
class Chaos:
    """A random history."""

    ground: ChainWorld
    nodes: list[FaultyNode]
    chance: random.Random
    bills: dict[UUID, Bill] = field(default_factory=dict)
    sighted: set[str] = field(default_factory=set)  # exact sightings in any poll so far

    async def round(self) -> None:
        """Run an action, and usually the watcher afterwards."""
        names, weights = zip(*ACTIONS.items(), strict=True)
        [name] = self.chance.choices(names, weights)
        for node in self.nodes:
            if node.faults.lag:
                node.faults = replace(node.faults, lag=self.chance.randint(1, 3))
        await getattr(self, f"do_{name}")()
        if self.chance.random() < 0.7:
            await self.poll()

    async def poll(self) -> None:
        """Run the watcher, and record the sightings of sessions that ended without money."""
        with suppress(ChainUnavailableError):
            await self.ground.catch_up()
        rows = await self.ground.world.rows("SELECT tx_hash FROM chain_sighting WHERE exact")
        self.sighted |= {f"0x{row['tx_hash'].hex()}" for row in rows}
        before = await self.open()
        await self.ground.decide()
        for session_id in before - await self.open():
            bill = self.bills[session_id]
            if await self.ground.status(bill.payment) != "PAID":
                bill.sightings_at_end = self.sighted & set(bill.tx_hashes)

    async def open(self) -> set[UUID]:
        rows = await self.ground.world.rows(
            "SELECT session_id FROM payment WHERE status = 'PROCESSING'"
        )
        return {row["session_id"] for row in rows} & self.bills.keys()

    def pick_bill(self) -> Bill | None:
        return self.chance.choice(list(self.bills.values())) if self.bills else None

    async def send(self, bill: Bill, **changes: Any) -> None:
        deadline = int(bill.payment.expires_at.timestamp())
        step = self.ground.call(bill.session, **({"deadline": deadline} | changes))
        transaction = {"from": self.ground.payer, "gas": hex(500_000), **step}
        with suppress(DevChainError):  # the pool may already contain the same transaction
            bill.tx_hashes.append(await self.ground.chain.ask("eth_sendTransaction", transaction))

    async def do_bill(self) -> None:
        token = self.chance.choice(["USDT", "NATIVED"])
        ttl_s = self.chance.choice(TTL_S)
        payment, session = await self.ground.bill(token, expires_in_s=ttl_s)
        self.bills[session.id] = Bill(payment, session)

    async def do_exact(self) -> None:
        if bill := self.pick_bill():
            await self.send(bill)

    async def do_under(self) -> None:
        if bill := self.pick_bill():
            await self.send(bill, amount=bill.session.quote.total_minor - self.chance.randint(1, 9))

    async def do_over(self) -> None:
        if bill := self.pick_bill():
            await self.send(bill, amount=bill.session.quote.total_minor + self.chance.randint(1, 9))

    async def do_grief(self) -> None:
        if bill := self.pick_bill():
            await self.send(bill, amount=10**16)
            await self.send(bill)

    async def do_wrong_token(self) -> None:
        if bill := self.pick_bill():
            token = {"USDT": "NATIVED", "NATIVED": "USDT"}[bill.session.quote.token or ""]
            await self.send(bill, token=token)

    async def do_unknown(self) -> None:
        if bill := self.pick_bill():
            await self.send(bill, uuid=self.chance.randbytes(16))

    async def do_repeat(self) -> None:
        if bill := self.pick_bill():
            await self.send(bill)
            await self.do_mine()
            await self.send(bill)

    async def do_change(self) -> None:
        if bill := self.pick_bill():
            with suppress(RefusedError):
                await self.ground.world.select(bill.payment, self.ground.world.card)

    async def do_post(self) -> None:
        bill = self.pick_bill()
        if bill and (bill.tx_hashes or self.chance.random() < 0.2):
            tx_hash = self.chance.choice(bill.tx_hashes) if bill.tx_hashes else ""
            await self.ground.post(bill.session, tx_hash or f"0x{self.chance.randbytes(32).hex()}")

    async def do_mine(self) -> None:
        await self.ground.mine(self.chance.randint(1, 5))

    async def do_reorg(self) -> None:
        await self.ground.reorg(self.chance.randint(1, REORG_MAX))

    async def do_pass(self) -> None:
        await self.ground.pass_time(self.chance.randint(60, 600))

    async def end(self) -> None:
        """Remove all faults, and run until everything has ended."""
        for node in self.nodes:
            node.faults = Faults()
        await self.ground.mine(CONFIRMATIONS + 1)
        await self.poll()
        await self.ground.move_clock(601)  # trigger the recheck
        await self.poll()
        await self.ground.pass_time(max(TTL_S) + 60)
        await self.ground.mine(CONFIRMATIONS + 1)
        await self.poll()
        await self.poll()


@dataclass
class Outcome:
    """The results of a history."""

    logs: int = 0
    lost: int = 0
    phantom: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    dispositions: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(
            self.logs + other.logs,
            self.lost + other.lost,
            self.phantom + other.phantom,
            self.statuses + other.statuses,
            self.dispositions + other.dispositions,
            self.errors + other.errors,
        )

    def __str__(self) -> str:
        counts = {**self.dispositions, **self.statuses}
        words = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        return f"{self.logs} logs, {self.lost} lost, {self.phantom} phantom ({words})"


async def true_logs(ground: ChainWorld) -> dict[tuple[str, int], Any]:
    """Read all final logs directly from the chain."""
    search = {
        "fromBlock": "0x0",
        "toBlock": hex((await ground.cursor()).block),
        "address": ground.deployment.contract_address,
        "topics": [f"0x{PAID.hex()}"],
    }
    logs = await ground.chain.ask("eth_getLogs", search)
    return {(log["transactionHash"], int(log["logIndex"], 16)): log for log in logs}


async def evaluate(chaos: Chaos) -> Outcome:
    """Compare the stored data with the chain."""
    ground = chaos.ground
    rows = await ground.world.rows("SELECT * FROM chain_receipt")
    stored = {(f"0x{row['tx_hash'].hex()}", row["log_index"]): row for row in rows}
    truth = await true_logs(ground)
    same = {
        key
        for key, row in stored.items()
        if key in truth and f"0x{row['block_hash'].hex()}" == truth[key]["blockHash"]
    }
    outcome = Outcome(len(truth), len(truth.keys() - stored.keys()), len(stored.keys() - same))
    outcome.dispositions.update(row["disposition"] for row in rows)
    [case] = await ground.world.rows("SELECT count(*) FROM money_case WHERE receipt_id IS NOT NULL")
    if case["count"] != len([row for row in rows if row["disposition"] != "credited"]):
        outcome.errors.append("a receipt without a case")
    for bill in chaos.bills.values():
        await evaluate_session(ground, bill, rows, outcome)
    return outcome


async def evaluate_session(
    ground: ChainWorld, bill: Bill, rows: list[Any], outcome: Outcome
) -> None:
    """Compare the outcome of a session with its receipts."""
    details = await ground.world.read(bill.payment)
    payment, session = details.payment, bill.session
    outcome.statuses[payment.status] += 1
    receipts = [row for row in rows if row["session_id"] == session.id]
    token = bytes.fromhex(ground.token(session.quote.token or "")[2:])
    exact = [
        row
        for row in receipts
        if (row["token"], int(row["amount"])) == (token, session.quote.total_minor)
    ]
    credited = [row for row in receipts if row["disposition"] == "credited"]
    if payment.session_id != session.id:  # the buyer selected a different method
        is_correct = not credited
    elif payment.status == "PAID":
        is_correct = credited == exact and len(exact) == 1
    else:
        hashes = {f"0x{row['tx_hash'].hex()}" for row in exact}
        is_late = all(row["disposition"] == "late" for row in exact)
        has_ended = payment.status in {"FAILED", "EXPIRED"}
        is_correct = (
            has_ended and is_late and not credited and hashes.isdisjoint(bill.sightings_at_end)
        )
    if not is_correct:
        kinds = [row["disposition"] for row in receipts]
        outcome.errors.append(f"{payment.status} {payment.failure_reason} {kinds}")


@pytest.fixture
def long_chain_url(anvil: Binary, tmp_path: Path) -> Iterator[str]:
    """The URL of a chain that keeps all its logs."""
    chain = Anvil(612_055, log=tmp_path / "anvil.log", binary=anvil, blocks_kept=None)
    yield chain.start()
    chain.stop()


@pytest.fixture(scope="module")
def results() -> Iterator[dict[int, Outcome]]:
    results: dict[int, Outcome] = {}
    yield results
    total = sum(results.values(), Outcome())
    print(f"\nall {len(results)} seeds: {total}")


@asynccontextmanager
async def history(world: World, url: str, seed: int) -> AsyncIterator[Chaos]:
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(FaultyNode(url, seed=seed + number, faults=faults))
            for number, faults in enumerate(MIXES[seed % len(MIXES)])
        ]
        urls = [node.url for node in nodes]
        ground = await stack.enter_async_context(
            chain_world(world, url, endpoints=urls, confirmations=CONFIRMATIONS)
        )
        await ground.allow()
        await ground.chain.ask("evm_setAutomine", False)
        await ground.mine(REORG_MAX)  # so that a reorg cannot revert the deployment
        yield Chaos(ground, nodes, random.Random(seed))


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_endpoint_faults_do_not_lose_or_invent_payments(
    world: World, long_chain_url: str, results: dict[int, Outcome], seed: int
) -> None:
    async with history(world, long_chain_url, seed) as chaos:
        for _ in range(ROUNDS):
            await chaos.round()
        assert (await chaos.ground.cursor()).halted is None
        await chaos.end()
        outcome = results[seed] = await evaluate(chaos)
        print(f"\nseed {seed}: {outcome}")
        assert (outcome.lost, outcome.phantom, outcome.errors) == (0, 0, [])
        await chaos.ground.reorg(CONFIRMATIONS + 2)
        await chaos.ground.mine(1)
        await chaos.poll()
        assert (await chaos.ground.cursor()).halted is not None
