"""Keccak-256, and addresses with the checksum that Ethereum derives from it."""

import re

_BITS = 256
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
_UPPER_FROM = 8  # of 16: a hash digit from here on makes its letter upper-case


def keccak(data: bytes) -> bytes:
    """Hash with Ethereum's Keccak, which is not the SHA-3 of the standard library."""
    from Crypto.Hash import keccak as hashes  # imported when used: most commands hash nothing

    return hashes.new(digest_bits=_BITS, data=data).digest()


def to_checksum_address(address: bytes) -> str:
    """Write an address of 20 bytes with its checksum, which is the case of letters (EIP-55)."""
    digits = address.hex()
    marks = keccak(digits.encode()).hex()
    return "0x" + "".join(
        digit.upper() if int(mark, 16) >= _UPPER_FROM else digit
        for digit, mark in zip(digits, marks, strict=False)
    )


def parse_address(text: str) -> bytes:
    """Parse an address; in mixed case its checksum must be right (ValueError)."""
    if not _ADDRESS.fullmatch(text):
        raise ValueError("an address is 0x and 40 hex digits")
    address = bytes.fromhex(text[2:])
    one_case = text[2:] in (text[2:].lower(), text[2:].upper())
    if not one_case and text != to_checksum_address(address):
        raise ValueError("the checksum of an address is wrong")
    return address
