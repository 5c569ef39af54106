from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from payintent.evm.refund_sender import RpcRefundSender
from payintent.runtime.settings import Settings
from payintent.service import Service
from payintent_sandbox.chains.anvil import Anvil
from payintent_sandbox.chains.anvil_binary import Binary
from tests.support.chain_fixtures import anvil as anvil
from tests.support.chain_fixtures import chain_url as chain_url
from tests.support.chain_fixtures import evm as evm
from tests.support.chain_refunds import RefundWorld
from tests.support.chain_refunds import refunding as open_refunding
from tests.support.contracts import contract_service
from tests.support.fakes import FakeGateway
from tests.support.onchain import ChainWorld, chain_world
from tests.support.world import World


@pytest.fixture
def refund_senders() -> dict[str, RpcRefundSender]:
    """The refund senders by chain, which `refunding` adds."""
    return {}


@pytest.fixture
async def service(
    settings: Settings, gateway: FakeGateway, refund_senders: dict[str, RpcRefundSender]
) -> AsyncIterator[Service]:
    """The service with the fake gateway and the contract's adapter."""
    async with contract_service(settings, gateway, refund_senders) as service:
        yield service


@pytest.fixture
async def ground(world: World, chain_url: str) -> AsyncIterator[ChainWorld]:
    """A chain with the deployed gateway; the payer has allowed all tokens."""
    async with chain_world(world, chain_url) as ground:
        await ground.allow()
        yield ground


@pytest.fixture
async def refunding(
    ground: ChainWorld, refund_senders: dict[str, RpcRefundSender]
) -> AsyncIterator[RefundWorld]:
    """The chain, with a funded refund account."""
    async with open_refunding(ground, refund_senders) as refunding:
        yield refunding


@pytest.fixture
def ethereum_url(anvil: Binary, tmp_path: Path) -> Iterator[str]:
    """The URL of a chain with the network id of Ethereum."""
    chain = Anvil(1, log=tmp_path / "ethereum.log", binary=anvil)
    yield chain.start()
    chain.stop()


@pytest.fixture
async def ethereum(world: World, ethereum_url: str) -> AsyncIterator[ChainWorld]:
    """Ethereum's tokens, with six decimals."""
    async with chain_world(world, ethereum_url, "ethereum") as ground:
        await ground.allow()
        yield ground
