"""The setup of a development chain: contract, tokens, and a buyer who can pay."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from eth_utils import to_checksum_address

from payintent_sandbox.chains.anvil import Anvil
from payintent_sandbox.chains.anvil_binary import Binary
from payintent_sandbox.chains.contracts import GATEWAY, PLAIN_TOKEN, load
from payintent_sandbox.chains.deploy import (
    PLANS,
    ChainBuyer,
    ChainPlan,
    Deployment,
    PlannedToken,
    deploy,
    describe,
    fund,
    is_deployed,
)
from payintent_sandbox.chains.rpc import DevChainError, open_chain
from tests.support.chain import Deployed, Evm
from tests.support.ports import free_port

pytestmark = pytest.mark.full

FAR = 2**40


@pytest.fixture(params=list(PLANS))
def plan(request: pytest.FixtureRequest) -> ChainPlan:
    return PLANS[request.param]


@pytest.fixture
def evm(anvil: Binary, plan: ChainPlan, tmp_path: Path) -> Iterator[Evm]:
    """A new chain with the plan's network id."""
    chain = Anvil(plan.network_id, log=tmp_path / "log", binary=anvil)
    client = Evm(chain.start())
    yield client
    client.close()
    chain.stop()


async def prepare(url: str, plan: ChainPlan) -> tuple[Deployment, ChainBuyer]:
    async with open_chain(url) as chain:
        deployment = await deploy(chain, plan)
        buyer = ChainBuyer.make()
        await fund(chain, deployment, buyer.address)
        assert await is_deployed(chain, deployment)
    return deployment, buyer


def contract(evm: Evm, name: str, address: str) -> Deployed:
    return Deployed(evm, load(name), address)


def balance(evm: Evm, token: PlannedToken, owner: str) -> int:
    if token.native:
        return evm.coins(owner)
    return contract(evm, PLAIN_TOKEN, token.address).call("balanceOf", owner)


def test_the_buyer_can_pay_in_every_token_with_a_key_unknown_to_the_node(
    evm: Evm, plan: ChainPlan
) -> None:
    from eth_account import Account

    deployment, buyer = asyncio.run(prepare(evm.url, plan))
    assert buyer.address not in evm.accounts
    assert Account.from_key(buyer.private_key).address == to_checksum_address(buyer.address)
    gateway = contract(evm, GATEWAY, deployment.contract_address)

    for token in deployment.tokens:
        before = balance(evm, token, deployment.receiver)
        amount = 25 * 10**token.decimals
        if not token.native:
            erc20 = contract(evm, PLAIN_TOKEN, token.address)
            assert erc20.call("symbol") == token.symbol
            assert erc20.call("decimals") == token.decimals
            sign_and_send(evm, buyer, erc20, "approve", gateway.address, amount)
        bill = uuid4().bytes
        value = amount if token.native else 0
        sign_and_send(evm, buyer, gateway, "pay", bill, token.address, amount, FAR, value=value)

        assert gateway.call("is_paid", bill, token.address, amount)
        assert balance(evm, token, deployment.receiver) == before + amount


def sign_and_send(
    evm: Evm, buyer: ChainBuyer, to: Deployed, function: str, *arguments: Any, value: int = 0
) -> None:
    """Send as a wallet does: the node receives a signed transaction, and never the key."""
    from eth_account import Account

    nonce = evm.ask("eth_getTransactionCount", buyer.address, "latest")
    transaction = {
        "to": to_checksum_address(to.address),
        "data": to.data(function, *arguments),
        "value": value,
        "nonce": int(nonce, 16),
        "gas": 300_000,
        "gasPrice": 2 * int(evm.ask("eth_gasPrice"), 16),
        "chainId": int(evm.ask("eth_chainId"), 16),
    }
    signed = Account.sign_transaction(transaction, buyer.private_key).raw_transaction
    receipt = evm.receipt(evm.ask("eth_sendRawTransaction", f"0x{signed.hex()}"))
    assert receipt["status"] == "0x1"


def test_the_refunder_is_unlocked_funded_and_approved_for_refunds(
    evm: Evm, plan: ChainPlan
) -> None:
    deployment, buyer = asyncio.run(prepare(evm.url, plan))
    gateway = contract(evm, GATEWAY, deployment.contract_address)
    bill = uuid4().bytes

    for token in deployment.tokens:
        before = balance(evm, token, buyer.address)
        arguments = (bill, uuid4().bytes, token.address, buyer.address, 7)
        value = 7 if token.native else 0
        gateway.send(deployment.refunder, "refund", *arguments, value=value)
        assert balance(evm, token, buyer.address) == before + 7


def test_the_description_contains_everything_that_a_tester_needs(evm: Evm, plan: ChainPlan) -> None:
    deployment, buyer = asyncio.run(prepare(evm.url, plan))

    description = describe(evm.url, deployment, buyer)

    assert description["network_id"] == plan.network_id
    assert description["rpc_url"] == evm.url
    assert description["contract_address"] == deployment.contract_address
    assert description["buyer"] == {"address": buyer.address, "private_key": buyer.private_key}
    assert {symbol: token["decimals"] for symbol, token in description["tokens"].items()} == {
        token.symbol: token.decimals for token in plan.tokens
    }
    if plan.slug == "native":
        assert description["tokens"]["NATIVED"]["address"] is None


@pytest.mark.parametrize("plan", [PLANS["native"]])
def test_a_lost_contract_or_a_different_chain_is_detected(
    evm: Evm, plan: ChainPlan, anvil: Binary, tmp_path: Path
) -> None:
    async def check_deployed(url: str, deployment: Deployment) -> bool:
        async with open_chain(url) as chain:
            return await is_deployed(chain, deployment)

    deployment, _ = asyncio.run(prepare(evm.url, plan))
    addresses = [deployment.contract_address, deployment.token("USDT").address]
    for address in addresses:
        with evm.revert_afterwards():
            evm.ask("anvil_setCode", address, "0x")
            assert not asyncio.run(check_deployed(evm.url, deployment))
    assert asyncio.run(check_deployed(evm.url, deployment))
    assert not asyncio.run(
        check_deployed(evm.url, replace(deployment, genesis_hash="0x" + 64 * "0"))
    )
    assert not asyncio.run(check_deployed(evm.url, replace(deployment, network_id=56)))
    newer = Anvil(plan.network_id, log=tmp_path / "younger", binary=anvil)
    try:
        assert not asyncio.run(check_deployed(newer.start(), deployment))
    finally:
        newer.stop()


@pytest.mark.parametrize("plan", [PLANS["bsc"]])
def test_contracts_are_not_deployed_to_a_different_chain(evm: Evm, plan: ChainPlan) -> None:
    async def deploy_wrong_plan() -> None:
        async with open_chain(evm.url) as chain:
            await deploy(chain, PLANS["ethereum"])

    with pytest.raises(DevChainError, match="is chain 56, not 1"):
        asyncio.run(deploy_wrong_plan())
    assert int(evm.ask("eth_blockNumber"), 16) == 0


@pytest.mark.parametrize("plan", [PLANS["bsc"]])
def test_a_failed_transaction_is_reported_with_its_reason(evm: Evm, plan: ChainPlan) -> None:
    async def fail() -> None:
        async with open_chain(evm.url) as chain:
            deployment = await deploy(chain, plan)
            gateway = contract(evm, GATEWAY, deployment.contract_address)
            unlisted = gateway.data("pay", uuid4().bytes, evm.accounts[5], 10**18, FAR)
            await chain.send(evm.accounts[0], gateway.address, unlisted)

    with pytest.raises(DevChainError, match="execution reverted: token"):
        asyncio.run(fail())


def test_an_unreachable_chain_is_reported_in_one_line() -> None:
    async def ask() -> None:
        async with open_chain(f"http://127.0.0.1:{free_port()}") as chain:
            await chain.ask("eth_chainId")

    with pytest.raises(DevChainError, match="does not respond") as caught:
        asyncio.run(ask())
    assert len(str(caught.value).splitlines()) == 1
