from collections.abc import AsyncIterator, Iterator

import pytest

from payintent.evm.chain_reader import RpcChainReader
from tests.evm.net import CHAIN, CONFIG
from tests.onchain.contract.contract_setup import Ground, make_ground
from tests.support.chain import Evm
from tests.support.chain_fixtures import anvil as anvil
from tests.support.chain_fixtures import evm as evm
from tests.support.fault_rpc import FaultyNode


@pytest.fixture(scope="session")
def session_ground(evm: Evm) -> Ground:
    return make_ground(evm)


@pytest.fixture
def ground(session_ground: Ground) -> Iterator[Ground]:
    """The contracts in their initial state; changes are reverted when the test ends."""
    with session_ground.evm.revert_afterwards():
        yield session_ground


@pytest.fixture
async def node(ground: Ground) -> AsyncIterator[FaultyNode]:
    """The reader's only node. It has no faults until a test sets them."""
    async with FaultyNode(ground.evm.url, seed=1) as node:
        yield node


@pytest.fixture
async def reader(node: FaultyNode) -> AsyncIterator[RpcChainReader]:
    reader = RpcChainReader(CHAIN, [node.url], CONFIG)
    yield reader
    await reader.close()
