"""The data of calls and deployments matches the compiled contracts' ABI."""

import eth_abi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payintent_sandbox.chains.contracts import GATEWAY, PLAIN_TOKEN, load

RECEIVER = "0x5fbdb2315678afecb367f032d93f642f64180aa3"
TOKEN = "0x00000000000000000000000000000000000000c5"
WORD = 64  # hex digits


@given(st.binary(min_size=16, max_size=16), st.integers(0, 2**256 - 1), st.integers(0, 2**64))
def test_call_data_is_the_selector_and_a_word_for_each_argument(
    uuid: bytes, amount: int, deadline: int
) -> None:
    data = load(GATEWAY).call_data("pay", uuid, TOKEN, amount, deadline)
    words = [uuid.hex().ljust(WORD, "0"), TOKEN[2:].rjust(WORD, "0")]
    assert data == "0x37c76321" + "".join([*words, f"{amount:064x}", f"{deadline:064x}"])


def test_creation_code_is_the_bytecode_and_the_constructor_arguments() -> None:
    contract = load(GATEWAY)
    data = contract.creation_code(RECEIVER, [TOKEN, RECEIVER], [1, 2])
    arguments = bytes.fromhex(data.removeprefix(contract.bytecode))
    types = ["address", "address[]", "uint256[]"]
    assert eth_abi.decode(types, arguments) == (RECEIVER, (TOKEN, RECEIVER), (1, 2))


def test_arguments_that_do_not_match_the_abi_are_refused() -> None:
    for amount in (-1, 2**256):
        with pytest.raises(eth_abi.exceptions.EncodingError):
            load(PLAIN_TOKEN).call_data("mint", RECEIVER, amount)
    with pytest.raises(ValueError, match="not enough values"):
        load(PLAIN_TOKEN).call_data("burn", RECEIVER)


def test_a_function_is_found_by_its_exact_name() -> None:
    assert load(GATEWAY).selector("pay") == "0x37c76321"
    assert load(GATEWAY).selector("is_paid") == "0x4fbb4143"
