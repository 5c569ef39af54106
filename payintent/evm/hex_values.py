"""Decode hex strings in JSON-RPC answers: bytes of a known length, and numbers (ValueError)."""

import re

HASH = 32
_INDEX_MAX = 2**63 - 1  # a bigint column holds block numbers and the like
_LOG_INDEX_MAX = 2**31 - 1  # an integer column holds the log index
# Python's int() accepts more: signs, spaces, underscores, a second 0x, non-ASCII digits.
_UINT = re.compile(r"0x[0-9a-fA-F]{1,64}")


def to_hex(data: bytes) -> str:
    return f"0x{data.hex()}"


def read_sized(text: str, size: int) -> bytes:
    if len(text) != 2 + 2 * size or text[:2] != "0x":
        raise ValueError(f"{size} bytes are 0x and {2 * size} hex digits")
    decoded = bytes.fromhex(text[2:])
    if len(decoded) != size:  # fromhex() skips spaces
        raise ValueError("a space among hex digits")
    return decoded


def read_hash(text: str) -> bytes:
    return read_sized(text, HASH)


def read_hex(text: str) -> bytes:
    return read_sized(text, len(text) // 2 - 1)


def read_uint(text: str) -> int:
    """Decode a number of up to 256 bits."""
    if not _UINT.fullmatch(text):
        raise ValueError("a number is 0x and up to 64 hex digits")
    return int(text, 16)


def read_index(text: str) -> int:
    """Decode a count or position: a block number, log index or Unix time."""
    if (value := read_uint(text)) > _INDEX_MAX:
        raise ValueError("a number beyond 63 bits")
    return value


def read_log_index(text: str) -> int:
    if (value := read_index(text)) > _LOG_INDEX_MAX:
        raise ValueError("a log index beyond 31 bits")
    return value
