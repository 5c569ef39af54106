"""A contract with different code or a different receiver: a drill in the runbook."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from payintent.chains import store as chain_store
from payintent.chains.checks import contracts_match
from payintent.chains.operations import ResumeChain, RetireContract
from payintent.chains.store import DeployedContract
from payintent.core.errors import ChainUnavailableError
from payintent.evm.chain_reader import RpcChainReader
from tests.onchain.test_token_checks import (
    get_halt_reason,
    has_read,
    run_checks,
    wait_until,
    watched,
)
from tests.support.contract_node import contract_node
from tests.support.onchain import ChainWorld, config_of
from tests.support.ports import free_port
from tests.support.world import Api

pytestmark = pytest.mark.full

_NETWORK_ID = 1


async def code_of(ground: ChainWorld) -> str:
    return await ground.chain.ask("eth_getCode", ground.deployment.contract_address, "latest")


async def set_code(ground: ChainWorld, code: str) -> None:
    await ground.chain.ask("anvil_setCode", ground.deployment.contract_address, code)


def change_metadata(code: str) -> str:
    """Change a byte of the metadata, which does not affect the behaviour of the code."""
    return f"{code[:-70]}{int(code[-70], 16) ^ 1:x}{code[-69:]}"


async def contract_of(ground: ChainWorld) -> DeployedContract:
    [contract] = await chain_store.list_contracts(ground.world.database, ground.slug)
    return contract


async def test_a_contract_with_different_code_halts_its_chain_until_it_is_retired(
    ethereum: ChainWorld, api: Api
) -> None:
    payment, session = await ethereum.bill("USDT")
    code = await code_of(ethereum)
    assert change_metadata(code) != code
    await set_code(ethereum, change_metadata(code))
    await ethereum.pay(session)
    await ethereum.mine()
    with capture_logs() as lines:
        async with watched(ethereum):
            await wait_until(lambda: _is_halted(ethereum))
            assert "a contract has unexpected code" in (await get_halt_reason(ethereum) or "")
            assert not await has_read(ethereum), "blocks are not read"
            assert await ethereum.status(payment) == "PROCESSING"
            problems = [text for is_ok, text in await run_checks(ethereum) if not is_ok]
            assert [
                text.endswith("code that differs from the compiled contract") for text in problems
            ] == [True]
            new_payment = await ethereum.world.create(currency="USD")
            assert await _offers(api, new_payment.checkout_id) == {None}

            await ethereum.world.perform(RetireContract(account_id=ethereum.account_id))
            await ethereum.world.perform(ResumeChain(chain="ethereum"))
            await wait_until(lambda: has_read(ethereum))
            assert await _offers(api, new_payment.checkout_id) == {None}
    assert "contract_misfit" in {line["event"] for line in lines}
    assert await get_halt_reason(ethereum) is None


async def test_a_chain_resumes_when_its_endpoints_show_our_code_again(
    ethereum: ChainWorld,
) -> None:
    payment, session = await ethereum.bill("USDT")
    code = await code_of(ethereum)
    await set_code(ethereum, "0x")
    async with watched(ethereum):
        await wait_until(lambda: _is_halted(ethereum))
        await set_code(ethereum, code)
        await ethereum.pay(session)
        await ethereum.mine(70)
        await ethereum.world.perform(ResumeChain(chain="ethereum"))

        async def is_paid() -> bool:
            return await ethereum.status(payment) == "PAID"

        await wait_until(is_paid)


async def test_a_single_endpoint_with_different_code_does_not_halt_the_chain(
    ethereum: ChainWorld,
) -> None:
    contract = await contract_of(ethereum)
    address = ethereum.deployment.contract_address.lower()
    with contract_node({address: "0x6001"}) as url:
        wrong_url = f"{url}/{_NETWORK_ID}"
        assert await _match(contract, wrong_url, ethereum.chain.url)
        assert not await _match(contract, wrong_url)
        stranger = replace(contract, receiver=bytes(20))
        assert not await _match(stranger, ethereum.chain.url)
        assert await _match(replace(stranger, current=False), ethereum.chain.url)


async def test_an_unreachable_endpoint_does_not_affect_the_contract_check(
    ethereum: ChainWorld,
) -> None:
    contract = await contract_of(ethereum)
    unreachable = f"http://127.0.0.1:{free_port()}"
    assert await _match(contract, unreachable, ethereum.chain.url)
    with pytest.raises(ChainUnavailableError):
        await _match(contract, unreachable)


async def _match(contract: DeployedContract, *urls: str) -> bool:
    reader = RpcChainReader("ethereum", urls, config_of("ethereum"))
    try:
        return await contracts_match("ethereum", reader, [contract])
    finally:
        await reader.close()


async def _is_halted(ground: ChainWorld) -> bool:
    return await get_halt_reason(ground) is not None


async def _offers(api: Api, checkout_id: str) -> set[str | None]:
    quotes = await api.send("GET", f"/v1/checkout/{checkout_id}/quotes")
    return {quote.get("chain") for quote in quotes.json["quotes"]}
