"""A contract is added only if every endpoint of its chain returns the compiled code."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pydantic import SecretStr

from payintent.approvals.operations import Approve
from payintent.chains import store as chain_store
from payintent.chains.operations import AddContract
from payintent.core import ids
from payintent.core.access import Role
from payintent.core.errors import ErrorCode, RefusedError
from payintent.evm.event_logs import list_runtime_codes
from payintent.operators.operation import Actor
from payintent.operators.proposals_store import Proposal
from payintent.service import Service
from payintent_sandbox.chains.contracts import PLAIN_TOKEN
from tests.onchain.contract.contract_setup import gateway_for
from tests.support.chain import Deployed, Evm
from tests.support.contract_node import contract_node, deployed_code
from tests.support.ports import free_port
from tests.support.world import World

pytestmark = pytest.mark.full

_SLUG = "native"
_NETWORK_ID = 612_055
_SECRET = "a-key-of-an-endpoint"
_ADA = Actor("Ada", "ticket 7", Role.ADMIN)
_ALAN = Actor("Alan", "agreed", Role.ADMIN)


@dataclass
class Site:
    """A real chain with the deployed gateway, and a service that reads it."""

    world: World
    evm: Evm
    gateway: Deployed
    receiver: str

    @property
    def code(self) -> str:
        return self.evm.ask("eth_getCode", self.gateway.address, "latest")

    def set_code(self, code: str) -> None:
        self.evm.ask("anvil_setCode", self.gateway.address, code)

    def service(self, *urls: str, sandbox: bool = True) -> Service:
        """Open the service with these endpoints."""
        service = self.world.service
        changes = {"rpc_native": SecretStr(",".join(urls)), "sandbox": sandbox}
        return replace(service, settings=service.settings.model_copy(update=changes))

    def operation(self, **changes: Any) -> AddContract:
        fields = {"address": self.gateway.address, "receiver": self.receiver, "deployed_block": 1}
        return AddContract(chain=_SLUG, **(fields | changes))

    async def add(self, *more_urls: str, **changes: Any) -> None:
        """Add the contract, which is read through the chain's and additional endpoints."""
        service = self.service(f"{self.evm.url}?key={_SECRET}", *more_urls)
        await service.run_operation(self.operation(**changes), Actor("test"))

    async def refusal(self, *more_urls: str, **changes: Any) -> str:
        """Try to add the contract; return the error if it is rejected and not stored."""
        with pytest.raises(RefusedError) as refused:
            await self.add(*more_urls, **changes)
        assert refused.value.code is ErrorCode.UNPROCESSABLE
        assert await chain_store.list_contracts(self.world.database, _SLUG) == []
        assert _SECRET not in refused.value.message
        assert "127.0.0.1" not in refused.value.message
        return refused.value.message


@pytest.fixture
def site(world: World, evm: Evm) -> Iterator[Site]:
    receiver = evm.accounts[1]
    with evm.revert_afterwards():
        yield Site(world, evm, gateway_for(evm, receiver), receiver)


async def test_the_compiled_contract_with_its_receiver_is_added(site: Site) -> None:
    await site.add(site.evm.url)
    [contract] = await chain_store.list_contracts(site.world.database, _SLUG)
    assert f"0x{contract.address.hex()}" == site.gateway.address


def test_deployed_code_is_the_compiled_code_followed_by_the_immutables(site: Site) -> None:
    [version] = list_runtime_codes()
    code = bytes.fromhex(site.code[2:])
    assert version.read_immutables(code) == {
        "receiver": bytes(12) + bytes.fromhex(site.receiver[2:])
    }
    assert len(code) == len(version.compiled) + 32


async def test_a_different_contract_is_rejected(site: Site) -> None:
    token = site.evm.deploy(PLAIN_TOKEN, "Plain", "PLAIN", 18)
    message = await site.refusal(address=token.address)
    assert message.startswith("native-1: contract 0x")
    assert message.endswith("has code that differs from the compiled contract")


@pytest.mark.parametrize("position", [0, 1_777, -33])
async def test_a_single_changed_byte_in_the_code_is_rejected(site: Site, position: int) -> None:
    code = bytearray.fromhex(site.code[2:])
    code[position] ^= 1
    site.set_code(f"0x{code.hex()}")
    assert "code that differs from the compiled contract" in await site.refusal()


@pytest.mark.parametrize("change", ["longer", "shorter"])
async def test_code_with_extra_or_missing_bytes_is_rejected(site: Site, change: str) -> None:
    site.set_code(site.code + "00" if change == "longer" else site.code[:-2])
    assert "code that differs from the compiled contract" in await site.refusal()


async def test_a_deployment_block_that_does_not_exist_is_rejected(site: Site) -> None:
    """Otherwise the chain would not be read until this block."""
    latest = int(site.evm.ask("eth_blockNumber"), 16)
    message = await site.refusal(deployed_block=latest + 1)
    assert message == f"native-1 does not have block {latest + 1}; check deployed_block"
    await site.add(deployed_block=latest)


async def test_an_account_without_code_is_rejected(site: Site) -> None:
    assert (await site.refusal(address=site.evm.accounts[2])).endswith("has no code")


async def test_a_receiver_that_differs_from_the_deployed_receiver_is_rejected(site: Site) -> None:
    message = await site.refusal(receiver=f"0x{40 * '2'}")
    assert message.endswith(f"; expected 0x{40 * '2'}")


async def test_a_deployed_receiver_that_is_not_an_address_is_rejected(site: Site) -> None:
    site.set_code(site.code[:-64] + "ff" + site.code[-62:])
    message = await site.refusal()
    assert message.startswith("native-1: contract 0x")


async def test_an_endpoint_that_returns_different_code_is_reported(site: Site) -> None:
    with contract_node({site.gateway.address: "0x6001"}) as url:
        message = await site.refusal(f"{url}/{_SECRET}/{_NETWORK_ID}")
    assert message.startswith("native-2: contract 0x")
    assert "native-1" not in message


async def test_an_endpoint_that_returns_a_different_receiver_is_reported(site: Site) -> None:
    codes = {site.gateway.address: deployed_code(f"0x{40 * '2'}")}
    with contract_node(codes) as url:
        message = await site.refusal(f"{url}/{_NETWORK_ID}")
    assert message.startswith("native-2: contract 0x")


async def test_an_endpoint_of_a_different_chain_is_reported(site: Site) -> None:
    with contract_node({site.gateway.address: site.code}) as url:
        message = await site.refusal(f"{url}/56")
    assert message.endswith(": native-2 serves a different chain")


async def test_an_unreachable_endpoint_is_reported(site: Site) -> None:
    message = await site.refusal(f"http://127.0.0.1:{free_port()}/{_SECRET}")
    assert message.endswith(": native-2 cannot be reached")


async def test_an_endpoint_with_an_invalid_url_is_reported(site: Site) -> None:
    message = await site.refusal(f"ws://{_SECRET}/")
    assert message == "the URL of native-2 must start with http:// or https://"


async def test_a_chain_without_endpoints_is_rejected_outside_the_sandbox(site: Site) -> None:
    service = site.service(sandbox=False)
    with pytest.raises(RefusedError, match="set PAYINTENT_RPC_NATIVE") as refused:
        await service.submit(site.operation(), _ADA)
    assert refused.value.code is ErrorCode.UNPROCESSABLE


async def test_the_code_is_checked_again_on_approval(site: Site) -> None:
    service = site.service(site.evm.url, sandbox=False)
    proposal = await service.submit(site.operation(), _ADA)
    assert isinstance(proposal, Proposal)
    site.set_code("0x6001")
    with pytest.raises(RefusedError, match=r"native-1: contract .* has code that differs"):
        await service.run_operation(
            Approve(approval_id=ids.format_id(ids.APPROVAL, proposal.id)), _ALAN
        )
    assert await chain_store.list_contracts(service.database, _SLUG) == []
