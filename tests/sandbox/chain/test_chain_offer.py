"""The sandbox's chains and their registration, even after they have lost their history."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from payintent.chains import store as chain_store
from payintent.chains import watch_store as chain_watch_store
from payintent.chains.operations import AddContract, ChainView, ListChains
from payintent.chains.signer_checks import check_refund_setup
from payintent.chains.store import ChainCursor
from payintent.evm.abi import parse_address
from payintent.evm.chain_reader import Finality, ReaderConfig, RpcChainReader
from payintent.evm.signer import open_signers
from payintent.merchants.methods_operations import ListPaymentMethods
from payintent.onchain.watch_loop import watch_once
from payintent_sandbox.chains.anvil_binary import Binary
from payintent_sandbox.chains.commands import app
from payintent_sandbox.chains.deploy import is_deployed
from payintent_sandbox.chains.dev_chains import (
    ChainsBusyError,
    ChainsOwner,
    DevChain,
    DevChains,
    find_owner,
)
from payintent_sandbox.chains.registration import ChainRegistration
from payintent_sandbox.chains.rpc import open_chain
from tests.e2e.sandbox import free_port_base
from tests.support.contracts import WATCHED_S
from tests.support.world import ACTOR, World

pytestmark = pytest.mark.full

SLUG = "bsc"


@dataclass
class Ground:
    """A sandbox's chains in a folder, and a service."""

    world: World
    var_dir: Path
    dev_chains: DevChains

    @property
    def folder(self) -> Path:
        return self.var_dir / "chains" / SLUG

    async def start(self) -> DevChain:
        """Start the chains and register one with the service; return it as registered."""
        await self.dev_chains.start(asyncio.Event())
        return await self.take(await self.dev_chains.make_ready(SLUG))

    async def take(self, chain: DevChain) -> DevChain:
        taken = await self.offer.take(self.dev_chains, chain, [self.world.merchant_id])
        await chain_watch_store.mark_watched(self.world.database, SLUG, 0, WATCHED_S)
        return taken

    @property
    def offer(self) -> ChainRegistration:
        return ChainRegistration(self.world.service, ACTOR)

    async def look(self, chain: DevChain, blocks: int = 5) -> ChainCursor:
        """Mine and read some blocks; return the position of the chain's cursor."""
        async with open_chain(chain.url) as rpc:
            await rpc.ask("anvil_mine", hex(blocks))
        database = self.world.database
        row = await chain_store.get_chain(database, SLUG)
        assert row is not None
        config = ReaderConfig(network_id=56, finality=Finality(row.finality))
        reader = RpcChainReader(SLUG, [chain.url], config)
        while await watch_once(self.world.service.watch_context, row, reader):
            pass
        await reader.close()
        cursor = await self.cursor()
        assert cursor.hash is not None
        return cursor

    async def cursor(self) -> ChainCursor:
        found = await chain_store.get_cursor(self.world.database, SLUG)
        assert found is not None
        return found

    async def view(self) -> ChainView:
        [view] = [chain for chain in await self.world.perform(ListChains()) if chain.slug == SLUG]
        return view

    async def offered(self) -> list[tuple[int, str]]:
        """List the merchant's usable methods on the chain, as account and token."""
        methods = await self.world.perform(ListPaymentMethods(merchant_id=self.world.merchant_id))
        return [
            (method.account_id, method.token)
            for method in methods
            if method.token and method.account_enabled
        ]


def _tokens_of(*account_ids: int) -> list[tuple[int, str]]:
    return [(account_id, token) for account_id in account_ids for token in ("USDC", "USDT")]


@pytest.fixture
async def ground(world: World, anvil: Binary, tmp_path: Path) -> AsyncIterator[Ground]:
    base = free_port_base()
    dev_chains = DevChains(tmp_path, [base, base + 1, base + 2])
    yield Ground(world, tmp_path, dev_chains)
    await dev_chains.stop()


async def test_a_chain_is_offered_once_and_found_again(ground: Ground) -> None:
    first = await ground.start()
    view = await ground.view()
    [contract], [factory] = view.contracts, view.factories
    assert (contract.current, contract.deployed_block) == (True, first.deployment.deployed_block)
    assert view.public_rpc_urls == [first.url]
    assert {token.symbol: token.enabled for token in view.tokens} == {"USDT": True, "USDC": True}
    assert await ground.offered() == _tokens_of(contract.account_id, factory.account_id)
    read = await ground.look(first)

    await ground.dev_chains.stop()
    again = await ground.start()

    assert again.instance != first.instance
    assert (again.deployment, again.buyer) == (first.deployment, first.buyer)
    assert (await ground.view()).contracts == view.contracts
    assert await ground.offered() == _tokens_of(contract.account_id, factory.account_id)
    cursor = await ground.cursor()
    assert (cursor.block, cursor.hash) == (read.block, read.hash)


async def test_refunds_are_sent_by_the_account_that_has_the_money_for_them(
    ground: Ground,
) -> None:
    chain = await ground.start()
    assert (await ground.view()).refunders == [parse_address(chain.deployment.refunder)]
    signers = open_signers({SLUG: chain.url})
    database = ground.world.database
    row = await chain_store.get_chain(database, SLUG)
    assert row is not None
    reader = RpcChainReader(SLUG, [chain.url], ReaderConfig(network_id=56))
    tokens = await chain_store.list_tokens(database, SLUG)
    contracts = await chain_store.list_contracts(database, SLUG)
    checks = check_refund_setup(signers[SLUG], reader, row, tokens, contracts)
    assert [check.is_ok async for check in checks] == [True] * 4
    await reader.close()
    await signers[SLUG].close()


async def test_a_chain_that_lost_everything_is_made_ready_anew_and_read_from_there(
    ground: Ground,
) -> None:
    first = await ground.start()
    before = await ground.view()
    await ground.look(first, 40)
    await ground.dev_chains.stop()
    (ground.folder / "state.json").unlink()

    again = await ground.start()

    assert again.buyer == first.buyer
    async with open_chain(again.url) as rpc:
        assert await is_deployed(rpc, again.deployment)
        assert await rpc.number("eth_getBalance", again.buyer.address, "latest") > 0
    cursor = await ground.cursor()
    assert (cursor.block, cursor.hash) == (0, None)
    assert (await ground.view()).contracts == before.contracts, "its address is the same"
    assert (await ground.look(again)).halted is None


async def test_a_chain_that_is_younger_than_what_was_read_is_read_again(ground: Ground) -> None:
    first = await ground.start()
    await ground.look(first)
    await ground.dev_chains.stop()
    older = shutil.copy(ground.folder / "state.json", ground.var_dir / "older.json")
    await ground.look(await ground.start(), 20)
    await ground.dev_chains.stop()
    shutil.copy(older, ground.folder / "state.json")

    again = await ground.start()

    assert again.deployment == first.deployment
    cursor = await ground.cursor()
    assert (cursor.block, cursor.hash) == (0, None)
    assert (await ground.look(again, 30)).halted is None


async def test_another_contract_takes_the_place_of_the_one_that_is_gone(ground: Ground) -> None:
    first = await ground.start()
    [old] = (await ground.view()).contracts
    await ground.look(first)

    moved = await ground.take(await ground.dev_chains.make_ready(SLUG, anew=True))

    gone, new = sorted((await ground.view()).contracts, key=lambda contract: contract.account_id)
    assert (gone.account_id, gone.current, new.current) == (old.account_id, False, True)
    assert new.address == parse_address(moved.deployment.contract_address)
    factory = next(item for item in (await ground.view()).factories if item.current)
    assert await ground.offered() == _tokens_of(new.account_id, factory.account_id)
    assert moved.buyer == first.buyer


async def test_a_retired_contract_never_comes_back(ground: Ground) -> None:
    first = await ground.start()
    await ground.take(await ground.dev_chains.make_ready(SLUG, anew=True))
    await ground.dev_chains.stop()
    (ground.folder / "state.json").unlink()  # the next one is where the first one was

    again = await ground.start()

    view = await ground.view()
    [current] = [row.address for row in view.contracts if row.current]
    assert current == parse_address(again.deployment.contract_address)
    assert current != parse_address(first.deployment.contract_address)


async def test_a_merchants_own_contract_that_stands_is_left_alone(ground: Ground) -> None:
    first = await ground.start()
    own = AddContract(
        chain=SLUG,
        address="0x" + 40 * "1",
        receiver=first.deployment.receiver,
        deployed_block=1,
        merchant_id=ground.world.merchant_id,
    )
    added = await ground.world.perform(own)
    await ground.take(first)
    current = [row.account_id for row in (await ground.view()).contracts if row.current]
    assert added.account_id in current
    assert len(current) == 2


async def test_two_do_not_run_the_chains_of_one_folder(ground: Ground) -> None:
    await ground.start()
    base = free_port_base()
    env = {"VAR_DIR": str(ground.var_dir), "PORT_BASE": str(base)}
    for word, said in (("up", "already running"), ("down", "belong to `make dev`")):
        done = CliRunner().invoke(app, [word], env=env)
        assert done.exit_code == 1
        assert said in done.stderr
    with pytest.raises(ChainsBusyError, match="in use"):
        await DevChains(ground.var_dir, [base, base + 1, base + 2]).start(asyncio.Event())


async def test_who_is_told_to_stop_before_they_are_awake_stops(ground: Ground) -> None:
    stop = asyncio.Event()
    stop.set()
    await ground.dev_chains.start(stop)
    assert ground.dev_chains.running == ()
    assert find_owner(ground.var_dir / "chains") == ChainsOwner(os.getpid(), "dev")
    await ground.dev_chains.stop()
    assert find_owner(ground.var_dir / "chains") is None
