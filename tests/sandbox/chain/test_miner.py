"""The miner mines a block only if it is needed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from payintent_sandbox.chains.anvil import Anvil
from payintent_sandbox.chains.anvil_binary import Binary
from payintent_sandbox.chains.dev_chains import instance
from payintent_sandbox.chains.miner import FINAL_DEPTH, Miner
from payintent_sandbox.chains.rpc import DevChainError, DevChainRpc, open_chain


class Waiting:
    """Whether the service needs blocks, and the number of restores."""

    def __init__(self) -> None:
        self.busy = False
        self.returns = 0


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


@pytest.fixture
async def chain(anvil: Binary, tmp_path: Path) -> AsyncIterator[DevChainRpc]:
    running = Anvil(1, log=tmp_path / "log", binary=anvil)
    async with open_chain(running.start()) as chain:
        yield chain
    running.stop()


@pytest.fixture
async def miner(chain: DevChainRpc, waiting: Waiting) -> Miner:
    async def busy() -> bool:
        return waiting.busy

    async def back() -> str:
        waiting.returns += 1
        return await instance(chain)

    return Miner(chain, await instance(chain), busy, back)


async def head(chain: DevChainRpc, tag: str = "latest") -> int:
    return int((await chain.ask("eth_getBlockByNumber", tag, False))["number"], 16)


async def test_nobody_waits_and_nothing_is_made(miner: Miner, chain: DevChainRpc) -> None:
    for _ in range(3):
        await miner.mine_once()
    assert await head(chain) == 0


async def test_while_the_service_waits_each_beat_makes_a_block(
    miner: Miner, chain: DevChainRpc, waiting: Waiting
) -> None:
    waiting.busy = True
    for _ in range(3):
        await miner.mine_once()
    waiting.busy = False
    await miner.mine_once()
    assert await head(chain) == 3


async def test_a_transaction_of_anybody_is_made_final_and_then_it_is_quiet(
    miner: Miner, chain: DevChainRpc
) -> None:
    await chain.ask("anvil_mine", "0x5")
    sender, receiver, *_ = await chain.ask("eth_accounts")
    mined = int((await chain.send(sender, receiver, value=1))["blockNumber"], 16)
    for _ in range(FINAL_DEPTH + 3):
        await miner.mine_once()
    assert await head(chain) == mined + FINAL_DEPTH
    assert await head(chain, "finalized") == mined


async def test_another_instance_of_the_chain_is_looked_after_once(
    miner: Miner, waiting: Waiting
) -> None:
    await miner.mine_once()
    assert waiting.returns == 0
    miner.instance_id = "the one before"
    await miner.mine_once()
    await miner.mine_once()
    assert waiting.returns == 1


async def test_a_chain_that_could_not_be_helped_is_tried_again(
    miner: Miner, chain: DevChainRpc
) -> None:
    tried = 0

    async def back() -> str:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise DevChainError("it is away again")
        return await instance(chain)

    miner.instance_id, miner.restore = "the one before", back
    with pytest.raises(DevChainError):
        await miner.mine_once()
    await miner.mine_once()
    await miner.mine_once()
    assert tried == 2
