"""The faulty node injects exactly the configured faults, so that tests can rely on it."""

from dataclasses import replace

import pytest

from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.port import EndpointBehindError, LogBatch
from tests.evm.net import CHAIN, CONFIG, NODE, height, make_payments, search
from tests.onchain.contract.contract_setup import Ground
from tests.support.fault_rpc import Faults, FaultyNode

PAYMENTS = 6


async def search_payments(reader: RpcChainReader, ground: Ground) -> LogBatch:
    last = height(ground)
    return await search(reader, ground, last - PAYMENTS + 1, last)


async def test_a_lagging_node_lags_in_every_response(
    ground: Ground, node: FaultyNode, reader: RpcChainReader
) -> None:
    make_payments(ground, PAYMENTS)
    hashes = [log.tx_hash for log in (await search_payments(reader, ground)).logs]
    last = height(ground)
    node.faults = Faults(lag=3)

    [heads] = await reader.fetch_heads()

    assert (heads.latest.number, heads.final.number) == (last - 3, last - 5)
    with pytest.raises(EndpointBehindError):
        await search_payments(reader, ground)
    receipts = await reader.fetch_receipts(NODE, hashes)
    assert [receipt is None for receipt in receipts] == [False, False, False, True, True, True]
    txs = await reader.fetch_transactions(NODE, hashes)
    assert [item is None for item in txs] == [False, False, False, True, True, True]
    assert await reader.fetch_block(NODE, last - 2) is None


async def test_dropped_logs_still_have_receipts(
    ground: Ground, node: FaultyNode, reader: RpcChainReader
) -> None:
    make_payments(ground, PAYMENTS)
    logs = (await search_payments(reader, ground)).logs
    node.faults = Faults(drop_logs=0.5)

    remaining = (await search_payments(reader, ground)).logs

    assert 0 < len(remaining) < PAYMENTS
    assert set(remaining) < set(logs)
    assert node.done["dropped"] == PAYMENTS - len(remaining)
    receipts = await reader.fetch_receipts(NODE, [item.tx_hash for item in logs])
    assert [receipt.logs for receipt in receipts if receipt] == [(item,) for item in logs]


@pytest.mark.parametrize("real", [0, PAYMENTS])
async def test_a_forged_log_looks_real_but_has_no_receipt(
    ground: Ground, node: FaultyNode, reader: RpcChainReader, real: int
) -> None:
    ground.evm.ask("anvil_mine", hex(PAYMENTS))
    make_payments(ground, real)
    node.faults = Faults(forge_logs=1.0)

    logs = (await search_payments(reader, ground)).logs

    assert len(logs) == real + 1
    receipts = await reader.fetch_receipts(NODE, [log.tx_hash for log in logs])
    [forged] = [log for log, receipt in zip(logs, receipts, strict=True) if receipt is None]
    block = await reader.fetch_block(NODE, forged.block_number)
    assert block
    assert block.hash == forged.block_hash


async def test_the_same_seed_causes_the_same_faults(ground: Ground) -> None:
    make_payments(ground, PAYMENTS)
    counts: list[list[int]] = []
    for seed in (5, 5, 6):
        async with FaultyNode(ground.evm.url, seed=seed) as node:
            node.faults = Faults(drop_logs=0.5, null_blocks=0.2, forge_logs=0.3)
            counts.append(await _search_repeatedly(node, ground))

    assert counts[0] == counts[1] != counts[2]


async def _search_repeatedly(node: FaultyNode, ground: Ground) -> list[int]:
    reader = RpcChainReader(CHAIN, [node.url], CONFIG)
    counts: list[int] = []
    for _ in range(10):
        try:
            counts.append(len((await search_payments(reader, ground)).logs))
        except EndpointBehindError:
            counts.append(-1)
    await reader.close()
    return counts


async def test_faults_can_be_combined_and_removed(
    ground: Ground, node: FaultyNode, reader: RpcChainReader
) -> None:
    make_payments(ground, PAYMENTS)
    node.faults = Faults(lag=1, range_max=2)
    node.faults = replace(node.faults, null_receipts=1.0, null_blocks=1.0)
    assert await reader.fetch_block(NODE, 1) is None
    node.faults = Faults()

    assert len((await search_payments(reader, ground)).logs) == PAYMENTS
