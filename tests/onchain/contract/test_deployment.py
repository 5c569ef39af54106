"""Deployment of the contract: its immutable values, and the mistakes that it rejects."""

import tempfile
from pathlib import Path

import pytest
import rlp
from eth_utils import keccak

from payintent_sandbox.chains.anvil import Anvil
from payintent_sandbox.chains.anvil_binary import Binary
from payintent_sandbox.chains.contracts import GATEWAY, load
from tests.onchain.contract.contract_setup import (
    COIN_MINIMUM,
    MINIMUM,
    NATIVE,
    Ground,
    gateway_for,
    make_ground,
)
from tests.onchain.contract.test_pay import AMOUNT, COINS, word
from tests.support.chain import Evm, expect_revert


def test_the_deployed_code_is_the_committed_bytecode_followed_by_the_receiver(
    ground: Ground,
) -> None:
    code = ground.evm.ask("eth_getCode", ground.gateway.address, "latest")

    assert code == load(GATEWAY).runtime_bytecode + word(ground.receiver)[2:]


def test_receiver_and_minimums_can_be_read(ground: Ground) -> None:
    assert ground.gateway.call("receiver") == ground.receiver
    assert ground.gateway.call("minimum", NATIVE) == COIN_MINIMUM
    assert ground.gateway.call("minimum", ground.usdt.address) == MINIMUM
    assert ground.gateway.call("minimum", ground.buyer) == 0


def test_the_contract_has_no_owner_functions() -> None:
    assert load(GATEWAY).selectors == {
        "pay(bytes16,address,uint256,uint256)": "0x37c76321",
        "refund(bytes16,bytes16,address,address,uint256)": "0xfccffc6b",
        "is_paid(bytes16,address,uint256)": "0x4fbb4143",
        "sweep(address)": "0x01681a62",
        "receiver()": "0xf7260d3e",
        "minimum(address)": "0x32ed635b",
    }


def test_an_invalid_receiver_is_rejected(ground: Ground) -> None:
    deployer = ground.evm.accounts[0]
    nonce = int(ground.evm.ask("eth_getTransactionCount", deployer, "latest"), 16)
    own_address = keccak(rlp.encode([bytes.fromhex(deployer[2:]), nonce]))[-20:].hex()

    for receiver in (f"0x{own_address}", NATIVE):
        with expect_revert("receiver"):
            gateway_for(ground.evm, receiver)


def test_an_invalid_token_list_is_rejected(ground: Ground) -> None:
    usdt, plain = ground.usdt.address, ground.plain.address
    for tokens, minimums, reason in (
        ([], [], "tokens"),
        ([usdt], [], "tokens"),
        ([usdt], [1, 1], "tokens"),
        ([usdt, plain], [1, 0], "minimum"),
        ([usdt, usdt], [1, 2], "minimum"),
        ([NATIVE, NATIVE], [1, 2], "minimum"),
        ([usdt, ground.buyer], [1, 1], "token"),
    ):
        with expect_revert(reason):
            ground.evm.deploy(GATEWAY, ground.receiver, tokens, minimums)
    assert ground.evm.deploy(GATEWAY, ground.receiver, [usdt, plain], [1, 1]).address


def test_sixteen_tokens_can_be_listed_and_seventeen_are_rejected(ground: Ground) -> None:
    addresses = [ground.evm.deploy("test_tokens/HostileToken").address for _ in range(17)]

    gateway = ground.evm.deploy(GATEWAY, ground.receiver, addresses[:16], [*range(1, 17)])
    assert [gateway.call("minimum", address) for address in addresses[:16]] == [*range(1, 17)]
    with expect_revert(""):
        ground.evm.deploy(GATEWAY, ground.receiver, addresses, [*range(1, 18)])


@pytest.mark.parametrize("hardfork", ["paris", "london"])
def test_the_contract_runs_on_the_paris_and_london_hard_forks(anvil: Binary, hardfork: str) -> None:
    with tempfile.TemporaryDirectory(prefix="payintent-chain-") as folder:
        chain = Anvil(1, log=Path(folder) / "anvil.log", binary=anvil, hardfork=hardfork)
        evm = Evm(chain.start())
        try:
            ground = make_ground(evm)
            assert ground.pay(ground.usdt, AMOUNT).ok
            assert ground.pay(None, COINS).ok
            assert ground.refund(ground.usdt, AMOUNT).ok
        finally:
            evm.close()
            chain.stop()
