"""Arguments of calls, encoded by hand as a library encodes them."""

import eth_abi
from hypothesis import given
from hypothesis import strategies as st

from payintent_sandbox.chains.contracts import GATEWAY, encode, load

words = st.integers(0, 2**256 - 1)
texts = st.text(max_size=80)


@given(words, st.lists(words, max_size=4), texts, words, st.lists(words, max_size=4))
def test_arguments_are_encoded_as_the_library_does(
    first: int, numbers: list[int], text: str, last: int, more: list[int]
) -> None:
    types = ["uint256", "uint256[]", "string", "uint256", "uint256[]"]
    expected = eth_abi.encode(types, [first, numbers, text, last, more]).hex()

    assert encode(first, numbers, text, last, more) == expected


def test_a_function_is_found_by_its_whole_name() -> None:
    assert load(GATEWAY).selector("pay") == "0x37c76321"
    assert load(GATEWAY).selector("is_paid") == "0x4fbb4143"
