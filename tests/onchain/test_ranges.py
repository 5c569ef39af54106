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
from payintent.onchain import pending_transfers, watcher
from payintent.onchain.log_proof import LogClaim, LogProof, prove_logs
from payintent.onchain.watch_loop import watch_once
from payintent.payments.model import Payment, Session
from tests.support.database_proxy import open_freezable_proxy
from tests.support.fault_rpc import Faults, FaultyNode
from tests.support.onchain import ChainWorld, chain_world
from tests.support.timeouts import PATIENCE_S
from tests.support.world import World

pytestmark = pytest.mark.full

LOGS = 6  # each in a separate block
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


async def create_bills(ground: ChainWorld, count: int = LOGS) -> list[Bill]:
    return [await ground.bill("NATIVED") for _ in range(count)]


async def pay(ground: ChainWorld, bills: Sequence[Bill]) -> None:
    for _, session in bills:
        await ground.pay(session)


async def assert_paid(ground: ChainWorld, bills: Sequence[Bill]) -> None:
    for payment, _ in bills:
        assert await ground.status(payment) == "PAID"
        assert await ground.world.events(payment) == ["payment.completed"]


async def pay_in_many_blocks(ground: ChainWorld) -> list[PaidLog]:
    """Pay in many blocks, and return the logs from the first endpoint."""
    await pay(ground, await create_bills(ground))
    await ground.mine(3)
    batch = await ground.reader.search_logs(
        "native-1", 1, await ground.height(), [_contract(ground)], None
    )
    return list(batch.logs)


async def prove(ground: ChainWorld, logs: Sequence[PaidLog]) -> LogProof:
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


async def test_logs_of_many_blocks_are_proven_by_a_single_search(pair: Pair) -> None:
    ground, first, second = pair
    logs = await pay_in_many_blocks(ground)
    before = first.requests, second.asked["eth_getLogs"]
    proof = await prove(ground, logs)
    assert (proof.logs, proof.unproven) == (logs, [])
    assert (first.requests, second.asked["eth_getLogs"]) == (before[0], before[1] + 1)


@pytest.mark.parametrize(
    "faults",
    [Faults(drop_logs=1.0), Faults(range_max=1)],
    ids=["logs omitted", "search rejected"],
)
async def test_each_block_is_queried_if_a_range_search_does_not_confirm_the_logs(
    pair: Pair, faults: Faults
) -> None:
    ground, _, second = pair
    logs = await pay_in_many_blocks(ground)
    second.faults = faults
    proof = await prove(ground, logs)
    assert (proof.logs, proof.unproven) == (logs, [])
    assert second.done["dropped"] or second.done["refused"]


async def test_a_proof_does_not_reduce_the_range_of_an_endpoint(pair: Pair) -> None:
    ground, _, second = pair
    logs = await pay_in_many_blocks(ground)
    second.faults = Faults(range_max=3)
    blocks = pending_transfers.read_block_ranges(
        ground.reader, "native-2", 1, await ground.height(), [_contract(ground)]
    )
    assert [log for batch in [batch async for batch in blocks] for log in batch.logs] == logs
    before = ground.reader.get_span("native-2")

    proof = await prove(ground, logs)

    assert (proof.logs, proof.unproven) == (logs, [])
    assert ground.reader.get_span("native-2") == before


async def test_a_log_in_a_range_is_proven_only_if_every_field_matches(pair: Pair) -> None:
    ground, *_ = pair
    logs = await pay_in_many_blocks(ground)
    for forged_log in (
        replace(logs[2], amount=logs[2].amount + 1),
        replace(logs[2], block_hash=bytes(32)),
        replace(logs[2], log_index=logs[2].log_index + 1),
        replace(logs[2], tx_hash=bytes(32)),
    ):
        claimed_logs = [*logs[:2], forged_log, *logs[3:]]
        proof = await prove(ground, claimed_logs)
        assert proof.unproven == [forged_log]
        assert forged_log not in proof.logs
        assert set(proof.logs) >= {*logs[:2], *logs[3:]}


async def test_a_forged_log_does_not_affect_the_payments_in_its_range(pair: Pair) -> None:
    ground, forger, _ = pair
    bills = await create_bills(ground)
    forger.faults = Faults(forge_logs=1.0)
    await pay(ground, bills)
    await ground.final()
    assert forger.done["forged"]
    await assert_paid(ground, bills)
    assert await ground.dispositions() == ["credited"] * LOGS


async def test_mismatched_logs_do_not_affect_the_payments_in_their_range(pair: Pair) -> None:
    ground, *_ = pair
    bills = await create_bills(ground)
    _, underpaid = bills[3]
    await pay(ground, bills[:3])
    await ground.pay_otherwise(underpaid, amount=underpaid.quote.total_minor - CENT)
    await ground.pay_otherwise(underpaid, uuid=bytes(15) + b"\x07")
    await pay(ground, bills[4:])
    await ground.final()
    assert sorted(await ground.dispositions()) == ["credited"] * 5 + ["underpaid", "unknown_uuid"]
    assert await ground.cases() == ["AMOUNT_MISMATCH", "UNKNOWN_REFERENCE"]
    await assert_paid(ground, bills[:3] + bills[4:])
    assert await ground.status(bills[3][0]) == "PROCESSING"


async def test_a_duplicate_in_a_range_opens_a_case(pair: Pair) -> None:
    ground, *_ = pair
    bills = await create_bills(ground)
    await pay(ground, bills)
    await ground.pay_otherwise(bills[0][1], amount=CENT)
    await ground.final()
    assert await ground.dispositions() == ["credited"] * LOGS + ["duplicate"]
    assert await ground.cases() == ["DOUBLE_PAYMENT"]
    await assert_paid(ground, bills)


async def test_the_exact_log_pays_if_a_range_has_two_logs_for_a_session(pair: Pair) -> None:
    ground, *_ = pair
    bills = await create_bills(ground)
    (_, first), (_, last) = bills[0], bills[-1]
    await ground.pay_otherwise(first, amount=first.quote.total_minor - CENT)
    await pay(ground, bills)
    await ground.pay_otherwise(last, amount=last.quote.total_minor + CENT)
    await ground.final()
    assert await ground.dispositions() == ["underpaid", *["credited"] * LOGS, "duplicate"]
    assert await ground.cases() == ["AMOUNT_MISMATCH", "DOUBLE_PAYMENT"]
    await assert_paid(ground, bills)


async def poll_until_a_commit_is_not_acknowledged(ground: ChainWorld, database_url: str) -> None:
    """Run the watcher with a connection that fails between the first commit and its response."""
    service = ground.world.service
    row = await chain_store.get_chain(service.database, "native")
    assert row is not None
    async with open_freezable_proxy(database_url) as proxy:
        pool = ConnectionPool(lambda: connect_as(proxy.url, {}, pooled=False), 4, PATIENCE_S)
        database = Database(service.settings, pool=pool)
        context: Any = replace(service.watch_context, database=database)
        proxy.freeze_after(b"COMMIT")
        poll = asyncio.create_task(watch_once(context, row, ground.reader))
        await proxy.holding()
        pool.terminate()
        with pytest.raises(StorageUnavailableError):
            await poll
        proxy.thaw()
        await pool.close()


async def test_a_range_is_written_once_if_its_commit_is_not_acknowledged(
    pair: Pair, database_url: str
) -> None:
    ground, *_ = pair
    bills = await create_bills(ground)
    await pay(ground, bills)
    await ground.pay_otherwise(bills[0][1], amount=CENT)
    await ground.mine(3)
    before = await ground.cursor()
    await poll_until_a_commit_is_not_acknowledged(ground, database_url)
    committed = (await ground.cursor()).block
    assert committed > before.block
    assert await ground.dispositions() == ["credited"] * LOGS + ["duplicate"]
    await ground.catch_up()
    assert await ground.dispositions() == ["credited"] * LOGS + ["duplicate"]
    assert await ground.cases() == ["DOUBLE_PAYMENT"]
    await assert_paid(ground, bills)


class _InterruptedReader:
    """A reader that changes the chain after its first search of a range."""

    def __init__(self, reader: RpcChainReader, action: Callable[[], Awaitable[None]]) -> None:
        self._reader = reader
        self._action: Callable[[], Awaitable[None]] | None = action

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    async def search_logs(self, *args: Any, **options: Any) -> LogBatch:
        batch = await self._reader.search_logs(*args, **options)
        action, self._action = self._action, None
        if action is not None:
            await action()
        return batch


async def test_a_reorg_during_a_range_credits_only_the_remaining_logs(
    pair: Pair,
) -> None:
    ground, *_ = pair
    bills = await create_bills(ground)
    await pay(ground, bills)
    await ground.mine(3)
    row = await chain_store.get_chain(ground.world.database, "native")
    assert row is not None

    async def revert_the_last_three() -> None:
        await ground.reorg(3 + 3)
        await ground.keep_time()

    reader: Any = _InterruptedReader(ground.reader, revert_the_last_three)
    while await watch_once(ground.world.service.watch_context, row, reader):
        pass
    await ground.final()
    assert await ground.dispositions() == ["credited"] * 3
    await assert_paid(ground, bills[:3])
    assert [await ground.status(payment) for payment, _ in bills[3:]] == ["PROCESSING"] * 3
    await pay(ground, bills[3:])
    await ground.final()
    assert await ground.dispositions() == ["credited"] * LOGS
    assert await ground.cases() == []
    assert (await ground.cursor()).halted is None
    await assert_paid(ground, bills)


async def test_a_range_interrupted_between_two_commits_resumes_without_duplicates(
    pair: Pair, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground, *_ = pair
    bills = await create_bills(ground)
    await pay(ground, bills)
    await ground.pay_otherwise(bills[0][1], amount=CENT)
    await ground.mine(3)
    before = await ground.cursor()
    monkeypatch.setattr(watcher, "LOGS_MAX", 2)
    await poll_until_a_commit_is_not_acknowledged(ground, database_url)
    assert await ground.dispositions() == ["credited"] * 2
    assert (await ground.cursor()).block == before.block, "the range is not complete"
    await assert_paid(ground, bills[:2])
    await ground.catch_up()
    assert await ground.dispositions() == ["credited"] * LOGS + ["duplicate"]
    assert await ground.cases() == ["DOUBLE_PAYMENT"]
    await assert_paid(ground, bills)
