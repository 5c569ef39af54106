"""Ids: prefixed base62 texts in the API, UUIDs inside."""

import re
from uuid import UUID

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
UUID_CHARS = 22  # 128 bits in base62
CHECKOUT_CHARS = 16  # 95 bits: a capability (spec 2.1)

_ID = re.compile(r"[a-z]+_[0-9A-Za-z]{22}")
_CHECKOUT_ID = re.compile(r"cs_[0-9A-Za-z]{16}")
_PAIRS = [high + low for high in BASE62 for low in BASE62]  # half as many divisions
_VALUES = {pair: value for value, pair in enumerate(_PAIRS)}
_MAX = 1 << 128

PAYMENT, SESSION, RECEIPT, CASE, REFUND = "pay", "sess", "rcpt", "case", "ref"
APPROVAL = "appr"


def to_base62(number: int, length: int) -> str:
    """Write a non-negative number with exactly `length` base62 digits, zero-padded on the left."""
    pairs: list[str] = []
    for _ in range((length + 1) // 2):
        number, pair = divmod(number, 62 * 62)
        pairs.append(_PAIRS[pair])
    pairs.reverse()
    return "".join(pairs)[-length:]


def format_id(prefix: str, value: UUID) -> str:
    """Write an id as the API shows it, such as `pay_` and 22 base62 digits."""
    return f"{prefix}_{to_base62(value.int, UUID_CHARS)}"


def parse_id(prefix: str, raw: str) -> UUID | None:
    """Parse an id that `format_id` wrote; `None` for anything else, which is then not found."""
    if not raw.startswith(f"{prefix}_") or not _ID.fullmatch(raw):
        return None
    number = 0
    for at in range(len(prefix) + 1, len(raw), 2):
        number = number * 62 * 62 + _VALUES[raw[at : at + 2]]
    return UUID(int=number) if number < _MAX else None


def is_checkout_id(raw: str) -> bool:
    """Tell whether a text has the form of a checkout id."""
    return _CHECKOUT_ID.fullmatch(raw) is not None


def make_uuid7(unix_ms: int, random_bits: int) -> UUID:
    """Build a UUIDv7 (RFC 9562 section 5.7) from a time and at least 74 random bits."""
    high = (unix_ms & 0xFFFF_FFFF_FFFF) << 80 | 0x7 << 76 | (random_bits >> 62 & 0xFFF) << 64
    return UUID(int=high | 0b10 << 62 | random_bits & 0x3FFF_FFFF_FFFF_FFFF)


def mask_checkout_id(checkout_id: str) -> str:
    """Shorten a capability for a log line: readers of logs must not be able to pay or cancel."""
    return f"cs_****{checkout_id[-4:]}"
