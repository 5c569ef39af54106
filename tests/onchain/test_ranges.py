"""A block range with many logs is proven by a single search and written in one transaction."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from payintent.chains import store as chain_store
from payintent.core.errors import StorageUnavailableError
from payintent.db.database import Database
from payintent.db.driver import connect_as
from payintent.db.pool import ConnectionPool
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.port import LogBatch, PaidLog
from payintent.onchain import watcher
from payintent.onchain.log_proof import LogClaim, LogProof, prove_logs
from payintent.onchain.watch_loop import watch_once
from payintent.payments.model import Payment, Session
from tests.support.database_proxy import open_freezable_proxy
from tests.support.fault_rpc import Faults, FaultyNode
from tests.support.onchain import ChainWorld, chain_world
from tests.support.patience import PATIENCE_S
from tests.support.world import World

pytestmark = pytest.mark.full

LOGS = 6  # each in a block of its own
CENT = 10**16
Pair = tuple[ChainWorld, FaultyNode, FaultyNode]
Bill = tuple[Payment, Session]


@pytest.fixture
async def pair(world: World, chain_url: str) -> AsyncIterator[Pair]:
    """A chain that is read through two endpoints."""
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(FaultyNode(chain_url)) for _ in range(2)]
        ground = await stack.enter_async_context(
            chain_world(world, chain_url, endpoints=[node.url for node in nodes])
        )
        await ground.turn()
        yield ground, nodes[0], nodes[1]


async def bills(ground: ChainWorld, count: int = LOGS) -> list[Bill]:
    return [await ground.bill("NATIVED") for _ in range(count)]


async def pay(ground: ChainWorld, billed: Sequence[Bill]) -> None:
    for _, session in billed:
        await ground.pay(session)


async def are_paid(ground: ChainWorld, billed: Sequence[Bill]) -> None:
    for payment, _ in billed:
        assert await ground.status(payment) == "PAID"
        assert await ground.world.events(payment) == ["payment.completed"]


async def paid_logs(ground: ChainWorld) -> list[PaidLog]:
    """Pay in many blocks, and return the logs from the first endpoint."""
    await pay(ground, await bills(ground))
    await ground.mine(3)
    chunk = await ground.reader.search_logs(
        "native-1", 1, await ground.height(), [_contract(ground)], None
    )
    return list(chunk.logs)


async def proven(ground: ChainWorld, logs: Sequence[PaidLog]) -> LogProof:
    claim = LogClaim(
        supplier="native-1",
        claimed_logs=logs,
        contracts=[_contract(ground)],
        last=await ground.height() - 2,
        current_endpoints={"native-1", "native-2"},
    )
    return await prove_logs(ground.reader, claim)


def _contract(ground: ChainWorld) -> bytes:
    return bytes.fromhex(ground.deployment.contract_address[2:])


async def test_logs_of_many_blocks_are_proven_by_one_search(pair: Pair) -> None:
    ground, one, other = pair
    logs = await paid_logs(ground)
    before = one.requests, other.asked["eth_getLogs"]
    proof = await proven(ground, logs)
    assert (proof.logs, proof.unproven) == (logs, [])
    assert (one.requests, other.asked["eth_getLogs"]) == (before[0], before[1] + 1)


@pytest.mark.parametrize(
    "faults",
    [Faults(drop_logs=1.0), Faults(range_max=1)],
    ids=["leaves logs out", "is refused"],
)
async def test_a_search_denies_nothing_and_each_block_is_asked_about_then(
    pair: Pair, faults: Faults
) -> None:
    ground, _, other = pair
    logs = await paid_logs(ground)
    other.faults = faults
    proof = await proven(ground, logs)
    assert (proof.logs, proof.unproven) == (logs, [])
    assert other.done["dropped"] or other.done["refused"]


async def test_a_log_of_a_range_counts_only_word_for_word(pair: Pair) -> None:
    ground, *_ = pair
    logs = await paid_logs(ground)
    for lie in (
        replace(logs[2], amount=logs[2].amount + 1),
        replace(logs[2], block_hash=bytes(32)),
        replace(logs[2], log_index=logs[2].log_index + 1),
        replace(logs[2], tx_hash=bytes(32)),
    ):
        claimed_logs = [*logs[:2], lie, *logs[3:]]
        proof = await proven(ground, claimed_logs)
        assert proof.unproven == [lie]
        assert lie not in proof.logs
        assert set(proof.logs) >= {*logs[:2], *logs[3:]}


async def test_a_forged_log_in_a_range_touches_itself_alone(pair: Pair) -> None:
    ground, liar, _ = pair
    billed = await bills(ground)
    liar.faults = Faults(forge_logs=1.0)
    await pay(ground, billed)
    await ground.final()
    assert liar.done["forged"]
    await are_paid(ground, billed)
    assert await ground.dispositions() == ["credited"] * LOGS


async def test_logs_of_a_range_that_are_no_payment_touch_themselves_alone(pair: Pair) -> None:
    ground, *_ = pair
    billed = await bills(ground)
    _, underpaid = billed[3]
    await pay(ground, billed[:3])
    await ground.pay_otherwise(underpaid, amount=underpaid.quote.total_minor - CENT)
    await ground.pay_otherwise(underpaid, uuid=bytes(15) + b"\x07")
    await pay(ground, billed[4:])
    await ground.final()
    assert sorted(await ground.dispositions()) == ["credited"] * 5 + ["underpaid", "unknown_uuid"]
    assert await ground.cases() == ["AMOUNT_MISMATCH", "UNKNOWN_REFERENCE"]
    await are_paid(ground, billed[:3] + billed[4:])
    assert await ground.status(billed[3][0]) == "PROCESSING"


async def test_a_duplicate_in_a_range_is_a_case(pair: Pair) -> None:
    ground, *_ = pair
    billed = await bills(ground)
    await pay(ground, billed)
    await ground.pay_otherwise(billed[0][1], amount=CENT)
    await ground.final()
    assert await ground.dispositions() == ["credited"] * LOGS + ["duplicate"]
    assert await ground.cases() == ["DOUBLE_PAYMENT"]
    await are_paid(ground, billed)


async def test_of_two_logs_for_one_session_in_a_range_the_exact_one_pays(pair: Pair) -> None:
    ground, *_ = pair
    billed = await bills(ground)
    (_, first), (_, last) = billed[0], billed[-1]
    await ground.pay_otherwise(first, amount=first.quote.total_minor - CENT)
    await pay(ground, billed)
    await ground.pay_otherwise(last, amount=last.quote.total_minor + CENT)
    await ground.final()
    assert await ground.dispositions() == ["underpaid", *["credited"] * LOGS, "duplicate"]
    assert await ground.cases() == ["AMOUNT_MISMATCH", "DOUBLE_PAYMENT"]
    await are_paid(ground, billed)


async def look_until_a_commit_is_not_answered(ground: ChainWorld, database_url: str) -> None:
    """Run the watcher with a connection that fails between the first commit and its response."""
    service = ground.world.service
    row = await chain_store.get_chain(service.database, "native")
    assert row is not None
    async with open_freezable_proxy(database_url) as proxy:
        pool = ConnectionPool(lambda: connect_as(proxy.url, {}, pooled=False), 4, PATIENCE_S)
        database = Database(service.settings, pool=pool)
        context: Any = replace(service.watch_context, database=database)
        proxy.freeze_after(b"COMMIT")
        looking = asyncio.create_task(watch_once(context, row, ground.reader))
        await proxy.holding()
        pool.terminate()
        with pytest.raises(StorageUnavailableError):
            await looking
        proxy.thaw()
        await pool.close()


async def test_a_range_whose_commit_was_not_answered_is_written_once(
    pair: Pair, database_url: str
) -> None:
    ground, *_ = pair
    billed = await bills(ground)
    await pay(ground, billed)
    await ground.pay_otherwise(billed[0][1], amount=CENT)
    await ground.mine(3)
    before = await ground.cursor()
    await look_until_a_commit_is_not_answered(ground, database_url)
    committed = (await ground.cursor()).block
    assert committed > before.block
    assert await ground.dispositions() == ["credited"] * LOGS + ["duplicate"]
    await ground.look()
    assert await ground.dispositions() == ["credited"] * LOGS + ["duplicate"]
    assert await ground.cases() == ["DOUBLE_PAYMENT"]
    await are_paid(ground, billed)


class _Interrupted:
    """A reader that changes the chain after its first search of a range."""

    def __init__(self, reader: RpcChainReader, happen: Callable[[], Awaitable[None]]) -> None:
        self._reader = reader
        self._happen: Callable[[], Awaitable[None]] | None = happen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    async def search_logs(self, *args: Any, **named: Any) -> LogBatch:
        chunk = await self._reader.search_logs(*args, **named)
        happen, self._happen = self._happen, None
        if happen is not None:
            await happen()
        return chunk


async def test_a_reorganisation_in_the_middle_of_a_range_pays_what_is_still_there(
    pair: Pair,
) -> None:
    ground, *_ = pair
    billed = await bills(ground)
    await pay(ground, billed)
    await ground.mine(3)
    row = await chain_store.get_chain(ground.world.database, "native")
    assert row is not None

    async def take_back_the_last_three() -> None:
        await ground.reorg(3 + 3)
        await ground.keep_time()

    reader: Any = _Interrupted(ground.reader, take_back_the_last_three)
    while await watch_once(ground.world.service.watch_context, row, reader):
        pass
    await ground.final()
    assert await ground.dispositions() == ["credited"] * 3
    await are_paid(ground, billed[:3])
    assert [await ground.status(payment) for payment, _ in billed[3:]] == ["PROCESSING"] * 3
    await pay(ground, billed[3:])
    await ground.final()
    assert await ground.dispositions() == ["credited"] * LOGS
    assert await ground.cases() == []
    assert (await ground.cursor()).halted is None
    await are_paid(ground, billed)


async def test_a_crash_between_two_parts_of_a_range_is_taken_up_and_writes_nothing_twice(
    pair: Pair, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground, *_ = pair
    billed = await bills(ground)
    await pay(ground, billed)
    await ground.pay_otherwise(billed[0][1], amount=CENT)
    await ground.mine(3)
    before = await ground.cursor()
    monkeypatch.setattr(watcher, "LOGS_MAX", 2)
    await look_until_a_commit_is_not_answered(ground, database_url)
    assert await ground.dispositions() == ["credited"] * 2
    assert (await ground.cursor()).block == before.block, "the range is not done"
    await are_paid(ground, billed[:2])
    await ground.look()
    assert await ground.dispositions() == ["credited"] * LOGS + ["duplicate"]
    assert await ground.cases() == ["DOUBLE_PAYMENT"]
    await are_paid(ground, billed)
