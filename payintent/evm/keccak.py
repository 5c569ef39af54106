"""Keccak-256, and checksummed Ethereum addresses (EIP-55)."""

import re

_BITS = 256
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
_UPPER_FROM = 8  # a letter is upper case if its digit of the hash is 8 or more


def keccak(data: bytes) -> bytes:
    """Hash with Keccak-256, which differs from the standard library's SHA3-256."""
    from Crypto.Hash import keccak as hashes  # imported late: most commands do not need it

    return hashes.new(digest_bits=_BITS, data=data).digest()


def to_checksum_address(address: bytes) -> str:
    """Format a 20-byte address; its checksum is the case of its letters (EIP-55)."""
    digits = address.hex()
    hash_digits = keccak(digits.encode()).hex()
    return "0x" + "".join(
        digit.upper() if int(hash_digit, 16) >= _UPPER_FROM else digit
        for digit, hash_digit in zip(digits, hash_digits, strict=False)
    )


def parse_address(text: str) -> bytes:
    """Parse an address; a mixed-case address must have a valid checksum (ValueError)."""
    if not _ADDRESS.fullmatch(text):
        raise ValueError("an address is 0x and 40 hex digits")
    address = bytes.fromhex(text[2:])
    has_checksum = text[2:] not in (text[2:].lower(), text[2:].upper())
    if has_checksum and text != to_checksum_address(address):
        raise ValueError("the address has a wrong checksum")
    return address
