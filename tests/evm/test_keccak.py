"""Keccak, and the checksum format of addresses."""

import pytest
from eth_utils import keccak as other_keccak
from eth_utils import to_checksum_address as other_checksum
from hypothesis import given
from hypothesis import strategies as some

from payintent.evm.abi import keccak, parse_address, to_checksum_address

# The examples of EIP-55.
CHECKSUM_ADDRESSES = [
    "0x52908400098527886E0F7030069857D2E4169EE7",
    "0xde709f2102306220921060314715629080e2fb77",
    "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
    "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
    "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
]


def test_empty_input_has_the_hash_from_the_ethereum_specification() -> None:
    expected = "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
    assert keccak(b"").hex() == expected


@given(some.binary(max_size=600))
def test_hashes_match_an_independent_implementation(data: bytes) -> None:
    assert keccak(data) == other_keccak(data)


@given(some.binary(min_size=20, max_size=20))
def test_checksums_match_an_independent_implementation(address: bytes) -> None:
    assert to_checksum_address(address) == other_checksum(address)
    assert parse_address(to_checksum_address(address)) == address


@pytest.mark.parametrize("checksum_address", CHECKSUM_ADDRESSES)
def test_an_address_is_parsed_in_checksum_lower_and_upper_case(checksum_address: str) -> None:
    address = bytes.fromhex(checksum_address[2:])
    for text in (checksum_address, checksum_address.lower(), "0x" + checksum_address[2:].upper()):
        assert parse_address(text) == address
    assert to_checksum_address(address) == checksum_address


@pytest.mark.parametrize(
    "text",
    [
        CHECKSUM_ADDRESSES[2].replace("A", "a", 1),
        CHECKSUM_ADDRESSES[2].replace("0x", "0X"),
        CHECKSUM_ADDRESSES[2][:-1],
        CHECKSUM_ADDRESSES[2] + "0",
        CHECKSUM_ADDRESSES[2] + "\n",
        CHECKSUM_ADDRESSES[2][2:],
        "0x" + 39 * "0" + "g",
        "0x" + 40 * "٣",
        "",
    ],
)
def test_an_invalid_address_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="address"):
        parse_address(text)
