"""The faulty node injects exactly the configured faults, so that tests can rely on it."""

from dataclasses import replace

import pytest

from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.port import EndpointBehindError, LogBatch
from tests.evm.net import CHAIN, CONFIG, NODE, height, pay_some, search
from tests.onchain.contract.ground import Ground
from tests.support.fault_rpc import Faults, FaultyNode

PAYMENTS = 6


async def found(reader: RpcChainReader, ground: Ground) -> LogBatch:
    last = height(ground)
    return await search(reader, ground, last - PAYMENTS + 1, last)


async def test_a_lagging_node_lags_in_every_response(
    ground: Ground, node: FaultyNode, reader: RpcChainReader
) -> None:
    pay_some(ground, PAYMENTS)
    hashes = [log.tx_hash for log in (await found(reader, ground)).logs]
    last = height(ground)
    node.faults = Faults(lag=3)

    [heads] = await reader.fetch_heads()

    assert (heads.latest.number, heads.final.number) == (last - 3, last - 5)
    with pytest.raises(EndpointBehindError):
        await found(reader, ground)
    receipts = await reader.fetch_receipts(NODE, hashes)
    assert [receipt is None for receipt in receipts] == [False, False, False, True, True, True]
    txs = await reader.fetch_transactions(NODE, hashes)
    assert [item is None for item in txs] == [False, False, False, True, True, True]
    assert await reader.fetch_block(NODE, last - 2) is None


async def test_dropped_logs_still_have_receipts(
    ground: Ground, node: FaultyNode, reader: RpcChainReader
) -> None:
    pay_some(ground, PAYMENTS)
    all_of_them = (await found(reader, ground)).logs
    node.faults = Faults(drop_logs=0.5)

    kept = (await found(reader, ground)).logs

    assert 0 < len(kept) < PAYMENTS
    assert set(kept) < set(all_of_them)
    assert node.done["dropped"] == PAYMENTS - len(kept)
    receipts = await reader.fetch_receipts(NODE, [item.tx_hash for item in all_of_them])
    assert [receipt.logs for receipt in receipts if receipt] == [(item,) for item in all_of_them]


@pytest.mark.parametrize("real", [0, PAYMENTS])
async def test_a_forged_log_looks_real_but_has_no_receipt(
    ground: Ground, node: FaultyNode, reader: RpcChainReader, real: int
) -> None:
    ground.evm.ask("anvil_mine", hex(PAYMENTS))
    pay_some(ground, real)
    node.faults = Faults(forge_logs=1.0)

    logs = (await found(reader, ground)).logs

    assert len(logs) == real + 1
    receipts = await reader.fetch_receipts(NODE, [log.tx_hash for log in logs])
    [forged] = [log for log, one in zip(logs, receipts, strict=True) if one is None]
    block = await reader.fetch_block(NODE, forged.block_number)
    assert block
    assert block.hash == forged.block_hash


async def test_the_same_seed_causes_the_same_faults(ground: Ground) -> None:
    pay_some(ground, PAYMENTS)
    told: list[list[int]] = []
    for seed in (5, 5, 6):
        async with FaultyNode(ground.evm.url, seed=seed) as node:
            node.faults = Faults(drop_logs=0.5, null_blocks=0.2, forge_logs=0.3)
            told.append(await _asked_often(node, ground))

    assert told[0] == told[1] != told[2]


async def _asked_often(node: FaultyNode, ground: Ground) -> list[int]:
    reader = RpcChainReader(CHAIN, [node.url], CONFIG)
    counts: list[int] = []
    for _ in range(10):
        try:
            counts.append(len((await found(reader, ground)).logs))
        except EndpointBehindError:
            counts.append(-1)
    await reader.close()
    return counts


async def test_faults_can_be_combined_and_removed(
    ground: Ground, node: FaultyNode, reader: RpcChainReader
) -> None:
    pay_some(ground, PAYMENTS)
    node.faults = Faults(lag=1, range_max=2)
    node.faults = replace(node.faults, null_receipts=1.0, null_blocks=1.0)
    assert await reader.fetch_block(NODE, 1) is None
    node.faults = Faults()

    assert len((await found(reader, ground)).logs) == PAYMENTS
