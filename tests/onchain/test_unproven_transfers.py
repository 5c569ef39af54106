"""A transaction without proof is set aside as a case, and does not delay other payments."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from payintent.core.errors import ChainUnavailableError
from payintent.evm.port import BlockId, MissingReason
from payintent.onchain import pending_transfers
from payintent.payments.model import Session
from tests.support.fault_rpc import Faults, FaultyNode
from tests.support.onchain import ChainWorld, chain_world
from tests.support.world import World

pytestmark = pytest.mark.full

HONEST = Faults()
Pair = tuple[ChainWorld, FaultyNode, FaultyNode]


@pytest.fixture
async def pair(world: World, chain_url: str) -> AsyncIterator[Pair]:
    """A chain that is read through two endpoints."""
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(FaultyNode(chain_url)) for _ in range(2)]
        ground = await stack.enter_async_context(
            chain_world(world, chain_url, endpoints=[node.url for node in nodes])
        )
        await ground.allow()
        await ground.turn()
        yield ground, nodes[0], nodes[1]


async def block_of(ground: ChainWorld, tx_hash: str) -> BlockId:
    receipt = await ground.chain.ask("eth_getTransactionReceipt", tx_hash)
    return BlockId(int(receipt["blockNumber"], 16), bytes.fromhex(receipt["blockHash"][2:]))


async def refuse_blocks(ground: ChainWorld, node: FaultyNode, *tx_hashes: str) -> None:
    """Make a node reject searches of the blocks of these transactions."""
    blocks = [await block_of(ground, tx_hash) for tx_hash in tx_hashes]
    node.faults = Faults(refused_blocks=[f"0x{tx_hash.hash.hex()}" for tx_hash in blocks])


async def open_cases(ground: ChainWorld) -> list[str]:
    rows = await ground.world.rows("SELECT kind FROM money_case WHERE status = 'OPEN'")
    return sorted(row["kind"] for row in rows)


async def test_unreadable_receipts_do_not_block_the_watcher(pair: Pair) -> None:
    ground, *nodes = pair
    payment, session = await ground.bill("USDT")
    for node in nodes:
        node.faults = Faults(large_receipts=True)
    await ground.pay(session)
    await ground.final()
    assert await ground.status(payment) == "PAID"
    assert await ground.cases() == []


async def test_an_unproven_transaction_does_not_delay_other_payments(
    pair: Pair,
) -> None:
    ground, first, second = pair
    stuck, stuck_session = await ground.bill("USDT")
    timely, session = await ground.bill("USDT")
    tx_hash = await ground.pay(stuck_session)
    await ground.pay(session)
    await refuse_blocks(ground, first, tx_hash)
    await refuse_blocks(ground, second, tx_hash)
    await ground.final()
    assert (await ground.status(stuck), await ground.status(timely)) == ("PROCESSING", "PAID")
    assert await ground.dispositions() == ["credited"]
    assert await open_cases(ground) == ["RECONCILIATION"]
    await ground.pass_time(2_000)  # past its deadline
    await ground.final()
    assert await ground.status(stuck) == "PROCESSING"
    assert await open_cases(ground) == ["RECONCILIATION"]
    first.faults = second.faults = HONEST
    await ground.final()
    assert await ground.status(stuck) == "PAID"
    assert await open_cases(ground) == []
    assert await ground.dispositions() == ["credited"] * 2


async def test_a_transaction_with_an_unknown_uuid_is_set_aside_until_it_is_proven(
    pair: Pair,
) -> None:
    ground, first, second = pair
    _, session = await ground.bill("USDT")
    tx_hash = await ground.pay_otherwise(session, uuid=bytes(15) + b"\x07")
    await refuse_blocks(ground, first, tx_hash)
    await refuse_blocks(ground, second, tx_hash)
    await ground.final()
    assert await ground.dispositions() == []
    [row] = await ground.world.rows("SELECT subject FROM money_case")
    assert tx_hash in row["subject"]
    first.faults = second.faults = HONEST
    await ground.move_clock(601)
    await ground.turn()  # the recheck
    assert await ground.dispositions() == ["unknown_uuid"]
    assert await open_cases(ground) == ["UNKNOWN_REFERENCE"]


async def test_too_many_unproven_transactions_stop_the_chain(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground, first, second = pair
    monkeypatch.setattr(pending_transfers, "OPEN_CASES_MAX", 0)
    _, session = await ground.bill("USDT")
    tx_hash = await ground.pay(session)
    await refuse_blocks(ground, first, tx_hash)
    await refuse_blocks(ground, second, tx_hash)
    await ground.mine(3)
    before = await ground.cursor()
    with pytest.raises(ChainUnavailableError):
        await ground.turn()
    assert (await ground.cursor()).block == before.block
    assert await ground.cases() == []


async def test_the_logs_of_an_orphaned_block_are_not_proof(pair: Pair) -> None:
    ground, *_ = pair
    payment, session = await ground.bill("NATIVED")
    del payment
    block = await block_of(ground, await ground.pay(session))
    contract = bytes.fromhex(ground.deployment.contract_address[2:])
    fetch_logs = ground.reader.fetch_block_logs
    [[log]] = await fetch_logs("native-2", [block], [contract])  # type: ignore[misc]
    assert (log.block_hash, log.uuid) == (block.hash, uuid_of(session))
    await ground.reorg(3)
    await ground.mine(5)
    assert await fetch_logs("native-2", [block], [contract]) == [[]]
    beyond = BlockId(block.number + 1_000, block.hash)
    assert await fetch_logs("native-2", [beyond], [contract]) == [MissingReason.BEHIND]


def uuid_of(session: Session) -> bytes:
    return bytes.fromhex((session.reference or "")[2:])


async def test_the_receipt_of_an_unrelated_posted_transaction_is_not_fetched(pair: Pair) -> None:
    ground, *nodes = pair
    _, session = await ground.bill("USDT")
    stranger = {"to": ground.payer, "value": "0x1", "data": "0x"}
    await ground.post(session, await ground.send(stranger))
    await ground.turn()
    [hint] = await ground.world.rows("SELECT state FROM chain_hint")
    assert hint["state"] == "foreign"
    assert sum(node.asked["eth_getTransactionReceipt"] for node in nodes) == 0
