"""Encoding and decoding of the few contract calls that we use, in words of 32 bytes."""

from payintent.domain.evm import PayCall

PAY_SIGNATURE = "pay(bytes16,address,uint256,uint256)"
# Written out, because Keccak's library takes longer to import than this package.
PAY = bytes.fromhex("37c76321")
REFUND = bytes.fromhex("fccffc6b")  # refund(bytes16,bytes16,address,address,uint256)
IS_PAID = bytes.fromhex("4fbb4143")  # is_paid(bytes16,address,uint256)
APPROVE = bytes.fromhex("095ea7b3")  # approve(address,uint256)
ALLOWANCE = bytes.fromhex("dd62ed3e")  # allowance(address,address)
BALANCE_OF = bytes.fromhex("70a08231")  # balanceOf(address)
DECIMALS = bytes.fromhex("313ce567")  # decimals()

WORD = 32
_UUID, _ADDRESS = 16, 20
_UUID_PADDING = bytes(WORD - _UUID)  # on the right: bytes are left-aligned in their word
_ADDRESS_PADDING = bytes(WORD - _ADDRESS)  # on the left: addresses are numbers
_SELECTOR = 4
_PAY_LENGTH = _SELECTOR + 4 * WORD

ERROR = bytes.fromhex("08c379a0")  # Error(string)
PANIC = bytes.fromhex("4e487b71")  # Panic(uint256)
_REASON_CHARS_MAX = 200


def encode_pay(uuid: bytes, token: bytes, amount: int, deadline: int) -> bytes:
    """Encode a call of `pay`; the deadline in Unix seconds."""
    words = (_of_uuid(uuid), _of_address(token), _of_uint(amount), _of_uint(deadline))
    return PAY + b"".join(words)


def encode_refund(uuid: bytes, refund_id: bytes, token: bytes, to: bytes, amount: int) -> bytes:
    """Encode a call of `refund`; the amount in the token's smallest units."""
    words = (_of_uuid(uuid), _of_uuid(refund_id), _of_address(token), _of_address(to))
    return REFUND + b"".join(words) + _of_uint(amount)


def encode_is_paid(uuid: bytes, token: bytes, amount: int) -> bytes:
    """Encode a call of `is_paid`: whether exactly this was paid."""
    return IS_PAID + _of_uuid(uuid) + _of_address(token) + _of_uint(amount)


def encode_approve(spender: bytes, amount: int) -> bytes:
    return APPROVE + _of_address(spender) + _of_uint(amount)


def encode_allowance(owner: bytes, spender: bytes) -> bytes:
    """Encode a call of `allowance`: how much a spender may still move."""
    return ALLOWANCE + _of_address(owner) + _of_address(spender)


def encode_balance_of(owner: bytes) -> bytes:
    return BALANCE_OF + _of_address(owner)


def encode_decimals() -> bytes:
    return DECIMALS


def read_pay(data: bytes) -> PayCall | None:
    """Decode a call of `pay` from a transaction's input; None where it is any other call."""
    if not data.startswith(PAY) or len(data) != _PAY_LENGTH:
        return None
    uuid, token, amount, deadline = words(data[_SELECTOR:], 4)
    try:
        return PayCall(to_uuid(uuid), to_address(token), to_uint(amount), to_uint(deadline))
    except ValueError:
        return None  # the contract refuses padding that is not zero too


def words(data: bytes, count: int) -> list[bytes]:
    """Split data into exactly so many words (ValueError)."""
    if len(data) != count * WORD:
        raise ValueError(f"{len(data)} bytes are not {count} words")
    return [data[at : at + WORD] for at in range(0, len(data), WORD)]


def to_uint(word: bytes) -> int:
    """Decode a number from its word (ValueError)."""
    if len(word) != WORD:
        raise ValueError("a number is one word")
    return int.from_bytes(word, "big")


def to_address(word: bytes) -> bytes:
    """Decode an address from its word (ValueError)."""
    if len(word) != WORD or not word.startswith(_ADDRESS_PADDING):
        raise ValueError("an address is twelve zeros and twenty bytes")
    return word[WORD - _ADDRESS :]


def to_uuid(word: bytes) -> bytes:
    """Decode a uuid from its word (ValueError)."""
    if len(word) != WORD or not word.endswith(_UUID_PADDING):
        raise ValueError("a uuid is sixteen bytes and sixteen zeros")
    return word[:_UUID]


def read_reason(data: bytes) -> str:
    """Decode why a call was reverted; "" without a reason, hex digits where it is no text."""
    if data.startswith(ERROR):
        return _read_text(data[_SELECTOR:])
    if data.startswith(PANIC) and len(data) == _SELECTOR + WORD:
        return f"panic {to_uint(data[_SELECTOR:]):#x}"
    return f"0x{data[:_SELECTOR].hex()}" if data else ""


def readable(text: str) -> str:
    """Make foreign text safe for a log: short, and of printable characters."""
    kept = text[:_REASON_CHARS_MAX]
    return "".join(char if char.isprintable() else "\ufffd" for char in kept)


def _read_text(data: bytes) -> str:
    """Decode the one text of `Error(string)`; "" where it is cut off."""
    place, length, text = data[:WORD], data[WORD : 2 * WORD], data[2 * WORD :]
    if len(length) != WORD or to_uint(place) != WORD or to_uint(length) > len(text):
        return ""
    return readable(text[: to_uint(length)].decode("utf-8", errors="replace"))


def _of_uint(value: int) -> bytes:
    if not 0 <= value < 2 ** (8 * WORD):
        raise ValueError("a number has 256 bits and no sign")
    return value.to_bytes(WORD, "big")


def _of_address(value: bytes) -> bytes:
    if len(value) != _ADDRESS:
        raise ValueError("an address has 20 bytes")
    return _ADDRESS_PADDING + value


def _of_uuid(value: bytes) -> bytes:
    if len(value) != _UUID:
        raise ValueError("a uuid has 16 bytes")
    return value + _UUID_PADDING
