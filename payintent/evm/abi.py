"""ABI encoding of our contract calls, hex parsing, and address checksums."""

import re
from collections.abc import Sequence

from payintent.evm.port import PayCall

PAY_SIGNATURE = "pay(bytes16,address,uint256,uint256)"
# Hard-coded, because the Keccak library takes longer to import than this package.
PAY = bytes.fromhex("37c76321")
REFUND = bytes.fromhex("fccffc6b")  # refund(bytes16,bytes16,address,address,uint256)
IS_PAID = bytes.fromhex("4fbb4143")  # is_paid(bytes16,address,uint256)
APPROVE = bytes.fromhex("095ea7b3")  # approve(address,uint256)
ALLOWANCE = bytes.fromhex("dd62ed3e")  # allowance(address,address)
BALANCE_OF = bytes.fromhex("70a08231")  # balanceOf(address)
DECIMALS = bytes.fromhex("313ce567")  # decimals()
MINIMUM = bytes.fromhex("32ed635b")  # minimum(address)
SWEEP_MANY = bytes.fromhex("d3eeb1b7")  # sweep_many(bytes16[],address)

WORD = 32
_UUID, _ADDRESS = 16, 20
_UUID_PADDING = bytes(WORD - _UUID)  # on the right: bytes are left-aligned in their word
_ADDRESS_PADDING = bytes(WORD - _ADDRESS)  # on the left: addresses are right-aligned
_SELECTOR = 4
_PAY_LENGTH = _SELECTOR + 4 * WORD

ERROR = bytes.fromhex("08c379a0")  # Error(string)
PANIC = bytes.fromhex("4e487b71")  # Panic(uint256)
_REASON_CHARS_MAX = 200

HASH = 32
_INDEX_MAX = 2**63 - 1  # block numbers and similar values are stored as bigint
_LOG_INDEX_MAX = 2**31 - 1  # log indexes are stored as integer
# int() would also accept signs, spaces, underscores, a second 0x and non-ASCII digits.
_UINT = re.compile(r"0x[0-9a-fA-F]{1,64}")

_KECCAK_BITS = 256
_ADDRESS_TEXT = re.compile(r"0x[0-9a-fA-F]{40}")
_UPPERCASE_MIN = 8  # a letter is upper case if the hash digit at its position is at least 8


def encode_pay(uuid: bytes, token: bytes, amount: int, deadline: int) -> bytes:
    """Encode a call to `pay`; `deadline` is in Unix seconds."""
    words = (
        _encode_uuid(uuid),
        _encode_address(token),
        _encode_uint(amount),
        _encode_uint(deadline),
    )
    return PAY + b"".join(words)


def encode_refund(uuid: bytes, refund_id: bytes, token: bytes, to: bytes, amount: int) -> bytes:
    """Encode a call to `refund`; `amount` is in the token's smallest unit."""
    words = (
        _encode_uuid(uuid),
        _encode_uuid(refund_id),
        _encode_address(token),
        _encode_address(to),
    )
    return REFUND + b"".join(words) + _encode_uint(amount)


def encode_sweep_many(uuids: Sequence[bytes], token: bytes) -> bytes:
    list_offset = _encode_uint(2 * WORD)
    items = b"".join(map(_encode_uuid, uuids))
    return SWEEP_MANY + list_offset + _encode_address(token) + _encode_uint(len(uuids)) + items


def encode_is_paid(uuid: bytes, token: bytes, amount: int) -> bytes:
    return IS_PAID + _encode_uuid(uuid) + _encode_address(token) + _encode_uint(amount)


def encode_approve(spender: bytes, amount: int) -> bytes:
    return APPROVE + _encode_address(spender) + _encode_uint(amount)


def encode_allowance(owner: bytes, spender: bytes) -> bytes:
    return ALLOWANCE + _encode_address(owner) + _encode_address(spender)


def encode_balance_of(owner: bytes) -> bytes:
    return BALANCE_OF + _encode_address(owner)


def encode_decimals() -> bytes:
    return DECIMALS


def encode_minimum(token: bytes) -> bytes:
    return MINIMUM + _encode_address(token)


def read_pay(data: bytes) -> PayCall | None:
    """Decode a `pay` call from a transaction's input; return None for any other input."""
    if not data.startswith(PAY) or len(data) != _PAY_LENGTH:
        return None
    uuid, token, amount, deadline = split_words(data[_SELECTOR:], 4)
    try:
        return PayCall(to_uuid(uuid), to_address(token), to_uint(amount), to_uint(deadline))
    except ValueError:
        return None  # the contract also rejects nonzero padding


def split_words(data: bytes, count: int) -> list[bytes]:
    """Split data into exactly `count` words. Raises `ValueError` for any other length."""
    if len(data) != count * WORD:
        raise ValueError(f"expected {count} words, not {len(data)} bytes")
    return [data[start : start + WORD] for start in range(0, len(data), WORD)]


def to_uint(word: bytes) -> int:
    if len(word) != WORD:
        raise ValueError("a number must be one word")
    return int.from_bytes(word, "big")


def to_address(word: bytes) -> bytes:
    if len(word) != WORD or not word.startswith(_ADDRESS_PADDING):
        raise ValueError("an address must be 12 zero bytes followed by 20 bytes")
    return word[WORD - _ADDRESS :]


def to_uuid(word: bytes) -> bytes:
    if len(word) != WORD or not word.endswith(_UUID_PADDING):
        raise ValueError("a uuid must be 16 bytes followed by 16 zero bytes")
    return word[:_UUID]


def decode_revert_reason(data: bytes) -> str:
    """Decode a revert reason. Return "" if there is none, or a custom error's selector in hex."""
    if data.startswith(ERROR):
        return _decode_error_text(data[_SELECTOR:])
    if data.startswith(PANIC) and len(data) == _SELECTOR + WORD:
        return f"panic {to_uint(data[_SELECTOR:]):#x}"
    return f"0x{data[:_SELECTOR].hex()}" if data else ""


def sanitize_text(text: str) -> str:
    """Make external text safe for a log: truncate it and replace unprintable characters."""
    start = text[:_REASON_CHARS_MAX]
    return "".join(char if char.isprintable() else "\ufffd" for char in start)


def _decode_error_text(data: bytes) -> str:
    """Decode the argument of `Error(string)`; return "" if it is truncated."""
    offset, length, text = data[:WORD], data[WORD : 2 * WORD], data[2 * WORD :]
    if len(length) != WORD or to_uint(offset) != WORD or to_uint(length) > len(text):
        return ""
    return sanitize_text(text[: to_uint(length)].decode("utf-8", errors="replace"))


def _encode_uint(value: int) -> bytes:
    if not 0 <= value < 2 ** (8 * WORD):
        raise ValueError("a number must be unsigned and have at most 256 bits")
    return value.to_bytes(WORD, "big")


def _encode_address(value: bytes) -> bytes:
    if len(value) != _ADDRESS:
        raise ValueError("an address must be 20 bytes long")
    return _ADDRESS_PADDING + value


def _encode_uuid(value: bytes) -> bytes:
    if len(value) != _UUID:
        raise ValueError("a uuid must be 16 bytes long")
    return value + _UUID_PADDING


def to_hex(data: bytes) -> str:
    return f"0x{data.hex()}"


def read_sized(text: str, size: int) -> bytes:
    if len(text) != 2 + 2 * size or text[:2] != "0x":
        raise ValueError(f"expected 0x followed by {2 * size} hex digits")
    decoded = bytes.fromhex(text[2:])
    if len(decoded) != size:  # fromhex() skips spaces
        raise ValueError("hex digits must not contain spaces")
    return decoded


def read_hash(text: str) -> bytes:
    return read_sized(text, HASH)


def read_hex(text: str) -> bytes:
    return read_sized(text, len(text) // 2 - 1)


def read_uint(text: str) -> int:
    """Decode a number of up to 256 bits."""
    if not _UINT.fullmatch(text):
        raise ValueError("a number must be 0x followed by up to 64 hex digits")
    return int(text, 16)


def read_index(text: str) -> int:
    """Decode a count or position: a block number, log index or Unix time."""
    if (value := read_uint(text)) > _INDEX_MAX:
        raise ValueError("the number exceeds 63 bits")
    return value


def read_log_index(text: str) -> int:
    if (value := read_index(text)) > _LOG_INDEX_MAX:
        raise ValueError("the log index exceeds 31 bits")
    return value


def keccak(data: bytes) -> bytes:
    """Hash with Keccak-256, which differs from the standard library's SHA3-256."""
    from Crypto.Hash import keccak as hashes  # imported late: most commands do not need it

    return hashes.new(digest_bits=_KECCAK_BITS, data=data).digest()


def to_checksum_address(address: bytes) -> str:
    """Format a 20-byte address with its EIP-55 checksum (mixed-case letters)."""
    digits = address.hex()
    hash_digits = keccak(digits.encode()).hex()
    return "0x" + "".join(
        digit.upper() if int(hash_digit, 16) >= _UPPERCASE_MIN else digit
        for digit, hash_digit in zip(digits, hash_digits, strict=False)
    )


def parse_address(text: str) -> bytes:
    """Parse an address and check its mixed-case checksum, if any. Raises `ValueError`."""
    if not _ADDRESS_TEXT.fullmatch(text):
        raise ValueError("an address must be 0x followed by 40 hex digits")
    address = bytes.fromhex(text[2:])
    has_checksum = text[2:] not in (text[2:].lower(), text[2:].upper())
    if has_checksum and text != to_checksum_address(address):
        raise ValueError("the address has an invalid checksum")
    return address
