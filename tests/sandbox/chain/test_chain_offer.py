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
from tests.support.contracts import WATCHED_S
from tests.support.ports import free_port_base
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
        return await self.register(await self.dev_chains.make_ready(SLUG))

    async def register(self, chain: DevChain) -> DevChain:
        registered = await self.offer.take(self.dev_chains, chain, [self.world.merchant_id])
        await chain_watch_store.mark_watched(self.world.database, SLUG, 0, WATCHED_S)
        return registered

    @property
    def offer(self) -> ChainRegistration:
        return ChainRegistration(self.world.service, ACTOR)

    async def mine_and_read(self, chain: DevChain, blocks: int = 5) -> ChainCursor:
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
        stored_cursor = await chain_store.get_cursor(self.world.database, SLUG)
        assert stored_cursor is not None
        return stored_cursor

    async def view(self) -> ChainView:
        [view] = [chain for chain in await self.world.perform(ListChains()) if chain.slug == SLUG]
        return view

    async def list_methods(self) -> list[tuple[int, str]]:
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


async def test_a_chain_is_registered_once_and_found_again_after_a_restart(ground: Ground) -> None:
    first = await ground.start()
    view = await ground.view()
    [contract], [factory] = view.contracts, view.factories
    assert (contract.current, contract.deployed_block) == (True, first.deployment.deployed_block)
    assert view.public_rpc_urls == [first.url]
    assert {token.symbol: token.enabled for token in view.tokens} == {"USDT": True, "USDC": True}
    assert await ground.list_methods() == _tokens_of(contract.account_id, factory.account_id)
    cursor_before = await ground.mine_and_read(first)

    await ground.dev_chains.stop()
    again = await ground.start()

    assert again.instance != first.instance
    assert (again.deployment, again.buyer) == (first.deployment, first.buyer)
    assert (await ground.view()).contracts == view.contracts
    assert await ground.list_methods() == _tokens_of(contract.account_id, factory.account_id)
    cursor = await ground.cursor()
    assert (cursor.block, cursor.hash) == (cursor_before.block, cursor_before.hash)


async def test_refunds_are_sent_by_the_funded_account(
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


async def test_a_chain_that_lost_its_state_is_set_up_again_and_read_from_its_start(
    ground: Ground,
) -> None:
    first = await ground.start()
    before = await ground.view()
    await ground.mine_and_read(first, 40)
    await ground.dev_chains.stop()
    (ground.folder / "state.json").unlink()

    again = await ground.start()

    assert again.buyer == first.buyer
    async with open_chain(again.url) as rpc:
        assert await is_deployed(rpc, again.deployment)
        assert await rpc.number("eth_getBalance", again.buyer.address, "latest") > 0
    cursor = await ground.cursor()
    assert (cursor.block, cursor.hash) == (0, None)
    assert (await ground.view()).contracts == before.contracts, "the contract has the same address"
    assert (await ground.mine_and_read(again)).halted is None


async def test_a_chain_restored_from_an_older_state_is_read_again(ground: Ground) -> None:
    first = await ground.start()
    await ground.mine_and_read(first)
    await ground.dev_chains.stop()
    older = shutil.copy(ground.folder / "state.json", ground.var_dir / "older.json")
    await ground.mine_and_read(await ground.start(), 20)
    await ground.dev_chains.stop()
    shutil.copy(older, ground.folder / "state.json")

    again = await ground.start()

    assert again.deployment == first.deployment
    cursor = await ground.cursor()
    assert (cursor.block, cursor.hash) == (0, None)
    assert (await ground.mine_and_read(again, 30)).halted is None


async def test_a_new_contract_replaces_a_lost_contract(ground: Ground) -> None:
    first = await ground.start()
    [old] = (await ground.view()).contracts
    await ground.mine_and_read(first)

    moved = await ground.register(await ground.dev_chains.make_ready(SLUG, anew=True))

    gone, new = sorted((await ground.view()).contracts, key=lambda contract: contract.account_id)
    assert (gone.account_id, gone.current, new.current) == (old.account_id, False, True)
    assert new.address == parse_address(moved.deployment.contract_address)
    factory = next(item for item in (await ground.view()).factories if item.current)
    assert await ground.list_methods() == _tokens_of(new.account_id, factory.account_id)
    assert moved.buyer == first.buyer


async def test_a_retired_contract_is_not_used_again(ground: Ground) -> None:
    first = await ground.start()
    await ground.register(await ground.dev_chains.make_ready(SLUG, anew=True))
    await ground.dev_chains.stop()
    (ground.folder / "state.json").unlink()  # the next contract gets the address of the first

    again = await ground.start()

    view = await ground.view()
    [current] = [row.address for row in view.contracts if row.current]
    assert current == parse_address(again.deployment.contract_address)
    assert current != parse_address(first.deployment.contract_address)


async def test_a_merchants_own_contract_is_not_changed(ground: Ground) -> None:
    first = await ground.start()
    own = AddContract(
        chain=SLUG,
        address="0x" + 40 * "1",
        receiver=first.deployment.receiver,
        deployed_block=1,
        merchant_id=ground.world.merchant_id,
    )
    added_contract = await ground.world.perform(own)
    await ground.register(first)
    current = [row.account_id for row in (await ground.view()).contracts if row.current]
    assert added_contract.account_id in current
    assert len(current) == 2


async def test_only_one_process_can_run_the_chains_of_a_folder(ground: Ground) -> None:
    await ground.start()
    base = free_port_base()
    env = {"VAR_DIR": str(ground.var_dir), "PORT_BASE": str(base)}
    for command, message in (("up", "already running"), ("down", "belong to `make dev`")):
        result = CliRunner().invoke(app, [command], env=env)
        assert result.exit_code == 1
        assert message in result.stderr
    with pytest.raises(ChainsBusyError, match="in use"):
        await DevChains(ground.var_dir, [base, base + 1, base + 2]).start(asyncio.Event())


async def test_a_stop_request_before_the_chains_respond_aborts_the_start(ground: Ground) -> None:
    stop = asyncio.Event()
    stop.set()
    await ground.dev_chains.start(stop)
    assert ground.dev_chains.running == ()
    assert find_owner(ground.var_dir / "chains") == ChainsOwner(os.getpid(), "dev")
    await ground.dev_chains.stop()
    assert find_owner(ground.var_dir / "chains") is None
