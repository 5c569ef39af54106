"""If a chain differs from its configuration, it is not offered, and `doctor` explains why."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import REGISTRY
from pydantic import SecretStr

from payintent.chains import store as chain_store
from payintent.chains.checks import (
    check_chain,
    check_search_range,
    open_configured_reader,
    token_decimals_match,
)
from payintent.chains.operations import AddContract, ResumeChain, SetToken
from payintent.chains.store import TokenRecord
from payintent.evm.abi import to_checksum_address
from payintent.evm.chain_reader import RpcChainReader
from payintent.onchain import watch_loop as watching_module
from payintent.onchain.operations import SetChain
from payintent.onchain.watch_loop import run_watch_loop
from payintent.service import Service
from payintent_sandbox.chains.contracts import PLAIN_TOKEN
from payintent_sandbox.chains.deploy import create_contract
from tests.support.contract_node import contract_node
from tests.support.deposits import add_factory
from tests.support.fault_rpc import Faults, FaultyNode
from tests.support.onchain import ChainWorld, config_of
from tests.support.patience import PATIENCE_S
from tests.support.world import Api, free_port

pytestmark = pytest.mark.full

LOOK_S = 0.02


def watching(ground: ChainWorld) -> Service:
    """Open the service with the chain's endpoint, which it polls continuously."""
    service = ground.world.service
    changes = {"rpc_ethereum": SecretStr(ground.chain.url), "chain_poll_idle_s": 0.05}
    return replace(service, settings=service.settings.model_copy(update=changes))


@asynccontextmanager
async def watched(ground: ChainWorld) -> AsyncIterator[None]:
    stop = asyncio.Event()
    watcher = asyncio.create_task(run_watch_loop(watching(ground).watch_context, ground.slug, stop))
    yield
    stop.set()
    await watcher


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await is_so():
            await asyncio.sleep(LOOK_S)


async def halted(ground: ChainWorld) -> str | None:
    cursor = await chain_store.get_cursor(ground.world.database, ground.slug)
    assert cursor is not None
    return cursor.halted


async def read(ground: ChainWorld) -> bool:
    cursor = await chain_store.get_cursor(ground.world.database, ground.slug)
    return cursor is not None and cursor.hash is not None


async def set_decimals(ground: ChainWorld, decimals: int) -> None:
    await ground.world.perform(SetToken(chain="ethereum", symbol="USDT", decimals=decimals))


async def found(ground: ChainWorld) -> list[tuple[bool, str]]:
    """Return doctor's findings."""
    service = watching(ground)
    database = service.database
    row = await chain_store.get_chain(database, ground.slug)
    assert row is not None
    reader = open_configured_reader(service.settings, row)
    assert reader is not None
    tokens = await chain_store.list_tokens(database, ground.slug)
    contracts = [
        *await chain_store.list_contracts(database, ground.slug),
        *await chain_store.list_factories(database, ground.slug),
    ]
    told = [(one.is_ok, one.text) async for one in check_chain(reader, row, tokens, contracts)]
    await reader.close()
    return told


async def test_a_process_that_watches_a_chain_no_longer_has_no_figures_of_it(
    ethereum: ChainWorld,
) -> None:
    labels = {"chain": ethereum.slug}
    async with watched(ethereum):
        await until(lambda: read(ethereum))
        assert REGISTRY.get_sample_value("payintent_chain_head", labels) is not None
    for name in ("head", "final", "cursor", "lag_seconds", "halted", "overdue"):
        assert REGISTRY.get_sample_value(f"payintent_chain_{name}", labels) is None


async def test_it_is_not_watched_and_offered_to_nobody_until_a_person_has_mended_it(
    ethereum: ChainWorld, api: Api
) -> None:
    await ethereum.mine()
    await set_decimals(ethereum, 18)
    payment = await ethereum.world.create(currency="USD")
    async with watched(ethereum):
        await until(lambda: _is(halted(ethereum)))
        assert "a token has unexpected decimals" in (await halted(ethereum) or "")
        await until(lambda: _shows_halt(1))
        assert not await read(ethereum)
        quotes = await api.send("GET", f"/v1/checkout/{payment.checkout_id}/quotes")
        assert {one.get("chain") for one in quotes.json["quotes"]} == {None}
        await set_decimals(ethereum, 6)
        await ethereum.world.perform(ResumeChain(chain="ethereum"))
        await until(lambda: read(ethereum))
        await until(lambda: _shows_halt(0))
    assert await halted(ethereum) is None


async def test_a_token_that_is_changed_while_the_chain_is_watched_is_asked_again(
    ethereum: ChainWorld,
) -> None:
    await ethereum.mine()
    async with watched(ethereum):
        await until(lambda: read(ethereum))
        await set_decimals(ethereum, 18)
        await until(lambda: _is(halted(ethereum)))


async def test_a_token_that_is_mended_while_it_is_compared_halts_nothing(
    ethereum: ChainWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ethereum.mine()
    await set_decimals(ethereum, 18)
    compare, verdicts = watching_module.token_decimals_match, []

    async def mended_meanwhile(*compared: Any) -> bool:
        verdicts.append(await compare(*compared))
        if len(verdicts) == 1:
            await set_decimals(ethereum, 6)
        return verdicts[-1]

    monkeypatch.setattr(watching_module, "token_decimals_match", mended_meanwhile)
    async with watched(ethereum):
        await until(lambda: read(ethereum))
    assert verdicts[:2] == [False, True]
    assert await halted(ethereum) is None


@pytest.mark.parametrize("code", ["", "6001", 64 * "f"])
async def test_one_endpoint_alone_that_shows_other_decimals_halts_nothing(
    ethereum: ChainWorld, code: str
) -> None:
    tokens = await chain_store.list_tokens(ethereum.world.database, ethereum.slug)
    address = ethereum.token("USDT").lower()
    with contract_node({address: code} if code else {}) as url:
        lying = f"{url}/1"
        assert await _match(tokens, lying, ethereum.chain.url)
        assert not await _match(tokens, lying)
    other = [replace(token, decimals=18) for token in tokens]
    assert not await _match(other, ethereum.chain.url)


async def _match(tokens: list[TokenRecord], *urls: str) -> bool:
    reader = RpcChainReader("ethereum", urls, config_of("ethereum"))
    try:
        return await token_decimals_match("ethereum", reader, tokens)
    finally:
        await reader.close()


async def test_doctor_finds_everything_right(ethereum: ChainWorld) -> None:
    await ethereum.mine()
    told = await found(ethereum)
    assert [right for right, _ in told] == [True] * 4
    head, usdc, token, contract = (text for _, text in told)
    assert "USDC" in usdc
    assert head.startswith("ethereum-1 is on chain 1 at block ")
    assert head.endswith(", 2 blocks after the last final block")
    assert token.endswith("has 6 decimals")
    assert "has our code and pays" in contract
    assert contract.endswith(f"pays {address(ethereum.deployment.receiver)}")


async def test_doctor_names_an_enabled_token_that_the_contract_does_not_accept(
    ethereum: ChainWorld,
) -> None:
    deployer, *_ = await ethereum.chain.ask("eth_accounts")
    other, _ = await create_contract(
        ethereum.chain, deployer, PLAIN_TOKEN, "Other dollar", "OTHER", 6
    )
    await ethereum.mine()
    await ethereum.world.perform(SetToken(chain="ethereum", symbol="USDC", address=other))
    [wrong] = [text for right, text in await found(ethereum) if not right]
    assert wrong.endswith("does not accept USDC")


async def test_doctor_checks_deposit_factories(ethereum: ChainWorld) -> None:
    await add_factory(ethereum)
    await ethereum.mine()
    right, text = (await found(ethereum))[-1]
    assert (right, "deposit factory" in text) == (True, True)
    await ethereum.world.rows(
        "UPDATE chain_contract SET receiver = decode(repeat('22', 20), 'hex')"
        " WHERE forwarder IS NOT NULL"
    )
    [wrong] = [text for right, text in await found(ethereum) if not right]
    assert f"expected 0x{40 * '2'}" in wrong


@pytest.mark.parametrize(("range_max", "is_ok"), [(None, True), (3, True), (2, False)])
async def test_doctor_names_an_endpoint_whose_ranges_are_shorter_than_a_poll(
    ethereum: ChainWorld, ethereum_url: str, range_max: int | None, is_ok: bool
) -> None:
    await ethereum.mine(5)
    row = await chain_store.get_chain(ethereum.world.database, "ethereum")
    assert row is not None
    assert row.block_time_ms == 12_000
    async with FaultyNode(ethereum_url, faults=Faults(range_max=range_max)) as node:
        reader = RpcChainReader("ethereum", [node.url], config_of("ethereum"))
        contract = bytes.fromhex(ethereum.deployment.contract_address[2:])
        told = await check_search_range(reader, "ethereum-1", row, [contract], 36.0)
        await reader.close()
    assert told.is_ok == is_ok
    assert ("covers the 3 blocks" if is_ok else "1 blocks, but 3 blocks appear") in told.text


async def test_doctor_names_each_thing_that_is_wrong(ethereum: ChainWorld) -> None:
    await ethereum.mine()
    await set_decimals(ethereum, 18)
    stranger = "0x" + 40 * "1"
    for place in (ethereum.deployment.token("USDT").address, stranger):
        added = AddContract(chain="ethereum", address=place, receiver=stranger, deployed_block=1)
        await ethereum.world.perform(added)
    await ethereum.world.rows(
        "UPDATE chain_contract SET receiver = decode(repeat('22', 20), 'hex')"
    )
    wrong = [text for right, text in await found(ethereum) if not right]
    assert len(wrong) == 4
    assert "has 18 decimals" not in wrong[0]
    assert "has 6 decimals, expected 18" in wrong[0]
    assert f"expected 0x{40 * '2'}" in wrong[1]
    assert "has code that differs from the compiled contract" in wrong[2]
    assert "has no code" in wrong[3]


async def test_doctor_says_which_endpoint_is_none_of_this_chain(ethereum: ChainWorld) -> None:
    await ethereum.world.rows("UPDATE chain SET network_id = 5 WHERE slug = 'ethereum'")
    [(right, text)] = await found(ethereum)
    assert (right, text) == (False, "ethereum-1 serves a different chain, expected chain 5")


async def test_doctor_says_which_endpoint_is_away(ethereum: ChainWorld) -> None:
    ethereum.chain.url = f"http://127.0.0.1:{free_port()}"
    [(right, text)] = await found(ethereum)
    assert (right, text) == (False, "ethereum-1 cannot be reached, expected chain 1")


async def test_a_chain_by_confirmations_needs_no_word_of_the_node(ethereum: ChainWorld) -> None:
    await ethereum.mine()
    counted = SetChain(chain="ethereum", finality="confirmations", confirmations=3)
    await ethereum.world.perform(counted)
    told = await found(ethereum)
    assert told[0][1].endswith(", 3 blocks after the last final block")


def address(text: str) -> str:
    return to_checksum_address(bytes.fromhex(text[2:]))


async def _shows_halt(value: int) -> bool:
    """Return the values that an alarm would see."""
    return REGISTRY.get_sample_value("payintent_chain_halted", {"chain": "ethereum"}) == value


async def _is(told: Awaitable[object]) -> bool:
    return bool(await told)
