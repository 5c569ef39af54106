"""The miner mines a block only if it is needed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from payintent_sandbox.chains.anvil import Anvil
from payintent_sandbox.chains.anvil_binary import Binary
from payintent_sandbox.chains.dev_chains import instance
from payintent_sandbox.chains.miner import FINAL_DEPTH, Miner
from payintent_sandbox.chains.rpc import DevChainError, DevChainRpc, open_chain


class ServiceState:
    """Whether the service needs blocks, and the number of restores."""

    def __init__(self) -> None:
        self.busy = False
        self.restores = 0


@pytest.fixture
def service() -> ServiceState:
    return ServiceState()


@pytest.fixture
async def chain(anvil: Binary, tmp_path: Path) -> AsyncIterator[DevChainRpc]:
    running = Anvil(1, log=tmp_path / "log", binary=anvil)
    async with open_chain(running.start()) as chain:
        yield chain
    running.stop()


@pytest.fixture
async def miner(chain: DevChainRpc, service: ServiceState) -> Miner:
    async def is_busy() -> bool:
        return service.busy

    async def restore() -> str:
        service.restores += 1
        return await instance(chain)

    return Miner(chain, await instance(chain), is_busy, restore)


async def head(chain: DevChainRpc, tag: str = "latest") -> int:
    return int((await chain.ask("eth_getBlockByNumber", tag, False))["number"], 16)


async def test_no_block_is_mined_unless_the_service_is_waiting(
    miner: Miner, chain: DevChainRpc
) -> None:
    for _ in range(3):
        await miner.mine_once()
    assert await head(chain) == 0


async def test_each_step_mines_a_block_while_the_service_is_waiting(
    miner: Miner, chain: DevChainRpc, service: ServiceState
) -> None:
    service.busy = True
    for _ in range(3):
        await miner.mine_once()
    service.busy = False
    await miner.mine_once()
    assert await head(chain) == 3


async def test_blocks_are_mined_until_a_transaction_is_final(
    miner: Miner, chain: DevChainRpc
) -> None:
    await chain.ask("anvil_mine", "0x5")
    sender, receiver, *_ = await chain.ask("eth_accounts")
    mined = int((await chain.send(sender, receiver, value=1))["blockNumber"], 16)
    for _ in range(FINAL_DEPTH + 3):
        await miner.mine_once()
    assert await head(chain) == mined + FINAL_DEPTH
    assert await head(chain, "finalized") == mined


async def test_a_new_instance_of_the_chain_is_restored_once(
    miner: Miner, service: ServiceState
) -> None:
    await miner.mine_once()
    assert service.restores == 0
    miner.instance_id = "previous-instance"
    await miner.mine_once()
    await miner.mine_once()
    assert service.restores == 1


async def test_a_failed_restore_is_retried(miner: Miner, chain: DevChainRpc) -> None:
    attempts = 0

    async def restore() -> str:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise DevChainError("the chain is unreachable")
        return await instance(chain)

    miner.instance_id, miner.restore = "previous-instance", restore
    with pytest.raises(DevChainError):
        await miner.mine_once()
    await miner.mine_once()
    await miner.mine_once()
    assert attempts == 2
