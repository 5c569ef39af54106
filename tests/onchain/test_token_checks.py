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
from tests.support.ports import free_port
from tests.support.timeouts import PATIENCE_S
from tests.support.world import Api

pytestmark = pytest.mark.full

POLL_INTERVAL_S = 0.02


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


async def wait_until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await is_so():
            await asyncio.sleep(POLL_INTERVAL_S)


async def get_halt_reason(ground: ChainWorld) -> str | None:
    cursor = await chain_store.get_cursor(ground.world.database, ground.slug)
    assert cursor is not None
    return cursor.halted


async def has_read(ground: ChainWorld) -> bool:
    cursor = await chain_store.get_cursor(ground.world.database, ground.slug)
    return cursor is not None and cursor.hash is not None


async def set_decimals(ground: ChainWorld, decimals: int) -> None:
    await ground.world.perform(SetToken(chain="ethereum", symbol="USDT", decimals=decimals))


async def run_checks(ground: ChainWorld) -> list[tuple[bool, str]]:
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
    findings = [
        (finding.is_ok, finding.text)
        async for finding in check_chain(reader, row, tokens, contracts)
    ]
    await reader.close()
    return findings


async def test_the_metrics_of_a_chain_are_removed_when_its_watcher_stops(
    ethereum: ChainWorld,
) -> None:
    labels = {"chain": ethereum.slug}
    async with watched(ethereum):
        await wait_until(lambda: has_read(ethereum))
        assert REGISTRY.get_sample_value("payintent_chain_head", labels) is not None
    for name in ("head", "final", "cursor", "lag_seconds", "halted", "overdue"):
        assert REGISTRY.get_sample_value(f"payintent_chain_{name}", labels) is None


async def test_a_chain_with_wrong_decimals_is_halted_until_an_operator_fixes_them(
    ethereum: ChainWorld, api: Api
) -> None:
    await ethereum.mine()
    await set_decimals(ethereum, 18)
    payment = await ethereum.world.create(currency="USD")
    async with watched(ethereum):
        await wait_until(lambda: _is_set(get_halt_reason(ethereum)))
        assert "a token has unexpected decimals" in (await get_halt_reason(ethereum) or "")
        await wait_until(lambda: _shows_halt(1))
        assert not await has_read(ethereum)
        quotes = await api.send("GET", f"/v1/checkout/{payment.checkout_id}/quotes")
        assert {quote.get("chain") for quote in quotes.json["quotes"]} == {None}
        await set_decimals(ethereum, 6)
        await ethereum.world.perform(ResumeChain(chain="ethereum"))
        await wait_until(lambda: has_read(ethereum))
        await wait_until(lambda: _shows_halt(0))
    assert await get_halt_reason(ethereum) is None


async def test_a_token_that_changes_while_the_chain_is_watched_is_checked_again(
    ethereum: ChainWorld,
) -> None:
    await ethereum.mine()
    async with watched(ethereum):
        await wait_until(lambda: has_read(ethereum))
        await set_decimals(ethereum, 18)
        await wait_until(lambda: _is_set(get_halt_reason(ethereum)))


async def test_a_token_fixed_during_the_check_does_not_halt_the_chain(
    ethereum: ChainWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ethereum.mine()
    await set_decimals(ethereum, 18)
    compare, verdicts = watching_module.token_decimals_match, []

    async def compare_and_fix(*arguments: Any) -> bool:
        verdicts.append(await compare(*arguments))
        if len(verdicts) == 1:
            await set_decimals(ethereum, 6)
        return verdicts[-1]

    monkeypatch.setattr(watching_module, "token_decimals_match", compare_and_fix)
    async with watched(ethereum):
        await wait_until(lambda: has_read(ethereum))
    assert verdicts[:2] == [False, True]
    assert await get_halt_reason(ethereum) is None


@pytest.mark.parametrize("code", ["", "6001", 64 * "f"])
async def test_a_single_endpoint_with_different_decimals_does_not_halt_the_chain(
    ethereum: ChainWorld, code: str
) -> None:
    tokens = await chain_store.list_tokens(ethereum.world.database, ethereum.slug)
    address = ethereum.token("USDT").lower()
    with contract_node({address: code} if code else {}) as url:
        wrong_url = f"{url}/1"
        assert await _match(tokens, wrong_url, ethereum.chain.url)
        assert not await _match(tokens, wrong_url)
    wrong_tokens = [replace(token, decimals=18) for token in tokens]
    assert not await _match(wrong_tokens, ethereum.chain.url)


async def _match(tokens: list[TokenRecord], *urls: str) -> bool:
    reader = RpcChainReader("ethereum", urls, config_of("ethereum"))
    try:
        return await token_decimals_match("ethereum", reader, tokens)
    finally:
        await reader.close()


async def test_doctor_passes_a_correct_chain(ethereum: ChainWorld) -> None:
    await ethereum.mine()
    findings = await run_checks(ethereum)
    assert [is_ok for is_ok, _ in findings] == [True] * 4
    head, usdc, token, contract = (text for _, text in findings)
    assert "USDC" in usdc
    assert head.startswith("ethereum-1 is on chain 1 at block ")
    assert head.endswith(", 2 blocks after the last final block")
    assert token.endswith("has 6 decimals")
    assert "has our code and pays" in contract
    assert contract.endswith(f"pays {address(ethereum.deployment.receiver)}")


async def test_doctor_reports_an_enabled_token_that_the_contract_does_not_accept(
    ethereum: ChainWorld,
) -> None:
    deployer, *_ = await ethereum.chain.ask("eth_accounts")
    token_address, _ = await create_contract(
        ethereum.chain, deployer, PLAIN_TOKEN, "Other dollar", "OTHER", 6
    )
    await ethereum.mine()
    await ethereum.world.perform(SetToken(chain="ethereum", symbol="USDC", address=token_address))
    [problems] = [text for is_ok, text in await run_checks(ethereum) if not is_ok]
    assert problems.endswith("does not accept USDC")


async def test_doctor_checks_deposit_factories(ethereum: ChainWorld) -> None:
    await add_factory(ethereum)
    await ethereum.mine()
    is_ok, text = (await run_checks(ethereum))[-1]
    assert (is_ok, "deposit factory" in text) == (True, True)
    await ethereum.world.rows(
        "UPDATE chain_contract SET receiver = decode(repeat('22', 20), 'hex')"
        " WHERE forwarder IS NOT NULL"
    )
    [problems] = [text for is_ok, text in await run_checks(ethereum) if not is_ok]
    assert f"expected 0x{40 * '2'}" in problems


@pytest.mark.parametrize(("range_max", "is_ok"), [(None, True), (3, True), (2, False)])
async def test_doctor_reports_an_endpoint_whose_search_range_is_shorter_than_a_poll(
    ethereum: ChainWorld, ethereum_url: str, range_max: int | None, is_ok: bool
) -> None:
    await ethereum.mine(5)
    row = await chain_store.get_chain(ethereum.world.database, "ethereum")
    assert row is not None
    assert row.block_time_ms == 12_000
    async with FaultyNode(ethereum_url, faults=Faults(range_max=range_max)) as node:
        reader = RpcChainReader("ethereum", [node.url], config_of("ethereum"))
        contract = bytes.fromhex(ethereum.deployment.contract_address[2:])
        findings = await check_search_range(reader, "ethereum-1", row, [contract], 36.0)
        await reader.close()
    assert findings.is_ok == is_ok
    assert (
        "covers the 3 blocks" if is_ok else "1 block, but 3 blocks are produced"
    ) in findings.text


async def test_doctor_reports_every_problem(ethereum: ChainWorld) -> None:
    await ethereum.mine()
    await set_decimals(ethereum, 18)
    stranger = "0x" + 40 * "1"
    for contract_address in (ethereum.deployment.token("USDT").address, stranger):
        operation = AddContract(
            chain="ethereum", address=contract_address, receiver=stranger, deployed_block=1
        )
        await ethereum.world.perform(operation)
    await ethereum.world.rows(
        "UPDATE chain_contract SET receiver = decode(repeat('22', 20), 'hex')"
    )
    problems = [text for is_ok, text in await run_checks(ethereum) if not is_ok]
    assert len(problems) == 4
    assert "has 18 decimals" not in problems[0]
    assert "has 6 decimals, expected 18" in problems[0]
    assert f"expected 0x{40 * '2'}" in problems[1]
    assert "has code that differs from the compiled contract" in problems[2]
    assert "has no code" in problems[3]


async def test_doctor_reports_an_endpoint_of_a_different_chain(ethereum: ChainWorld) -> None:
    await ethereum.world.rows("UPDATE chain SET network_id = 5 WHERE slug = 'ethereum'")
    [(is_ok, text)] = await run_checks(ethereum)
    assert (is_ok, text) == (False, "ethereum-1 serves a different chain; expected chain 5")


async def test_doctor_reports_an_unreachable_endpoint(ethereum: ChainWorld) -> None:
    ethereum.chain.url = f"http://127.0.0.1:{free_port()}"
    [(is_ok, text)] = await run_checks(ethereum)
    assert (is_ok, text) == (False, "ethereum-1 cannot be reached; expected chain 1")


async def test_doctor_uses_the_configured_number_of_confirmations(ethereum: ChainWorld) -> None:
    await ethereum.mine()
    operation = SetChain(chain="ethereum", finality="confirmations", confirmations=3)
    await ethereum.world.perform(operation)
    findings = await run_checks(ethereum)
    assert findings[0][1].endswith(", 3 blocks after the last final block")


def address(text: str) -> str:
    return to_checksum_address(bytes.fromhex(text[2:]))


async def _shows_halt(value: int) -> bool:
    """Return whether the metric has this value."""
    return REGISTRY.get_sample_value("payintent_chain_halted", {"chain": "ethereum"}) == value


async def _is_set(value: Awaitable[object]) -> bool:
    return bool(await value)
