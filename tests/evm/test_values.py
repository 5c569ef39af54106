"""Hex text has exactly the expected length, and formats that only Python accepts are rejected."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from payintent.evm.abi import read_hex, read_index, read_sized, read_uint


@given(some.binary(max_size=100))
def test_hex_text_is_parsed_as_bytes(data: bytes) -> None:
    for text in (data.hex(), data.hex().upper()):
        assert read_hex(f"0x{text}") == data
        assert read_sized(f"0x{text}", len(data)) == data


@given(some.integers(0, 2**256 - 1))
def test_hex_text_is_parsed_as_a_number(number: int) -> None:
    assert read_uint(hex(number)) == number
    assert read_uint(f"0x{number:064X}") == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0x",
        "0x11",
        "0x112233 ",
        "0x 112233",
        "0x11 22 33",
        "0x11  33",
        "0x11223344",
        "0x11223",
        "112233",
        "00112233",
        "0X112233",
        "0x1122gg",
        "0x\u0661\u06612233",
    ],
)
def test_hex_text_of_the_wrong_length_or_with_invalid_digits_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_sized(text, 3)


@pytest.mark.parametrize("text", ["", "0", "0x1", "0x11 ", "0x1 1", "1122", "0xzz"])
def test_text_that_is_not_whole_hex_bytes_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_hex(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0x",
        "7",
        "0X7",
        "0x-7",
        "0x+7",
        "-0x7",
        "0x 7",
        "0x7 ",
        "0x7\n",
        "0x1_0",
        "0x0x7",
        "0xg",
        "0x\u0661",
        "0x1" + 64 * "0",
        "0x0" + 64 * "0",
    ],
)
def test_an_invalid_number_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_uint(text)


def test_an_index_has_at_most_63_bits() -> None:
    assert read_index("0x7fffffffffffffff") == 2**63 - 1
    with pytest.raises(ValueError, match="63 bits"):
        read_index("0x8000000000000000")
