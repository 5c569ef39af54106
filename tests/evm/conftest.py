from collections.abc import AsyncIterator, Iterator

import pytest

from payintent.evm.chain_reader import RpcChainReader
from tests.evm.net import CHAIN, CONFIG
from tests.onchain.contract.ground import Ground, make_ground
from tests.support.chain import Evm
from tests.support.chain_fixtures import anvil as anvil
from tests.support.chain_fixtures import evm as evm
from tests.support.fault_rpc import FaultyNode


@pytest.fixture(scope="session")
def made(evm: Evm) -> Ground:
    return make_ground(evm)


@pytest.fixture
def ground(made: Ground) -> Iterator[Ground]:
    """The ground in its initial state, because each test's changes are undone."""
    with made.evm.revert_afterwards():
        yield made


@pytest.fixture
async def node(ground: Ground) -> AsyncIterator[FaultyNode]:
    """The reader's only node, which has no faults at first."""
    async with FaultyNode(ground.evm.url, seed=1) as node:
        yield node


@pytest.fixture
async def reader(node: FaultyNode) -> AsyncIterator[RpcChainReader]:
    reader = RpcChainReader(CHAIN, [node.url], CONFIG)
    yield reader
    await reader.close()
