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

TIMED_RANDOM_BITS = 74
_VERSION = 7
_VARIANT = 0b10
_LOW_BITS = 62  # of the random bits, behind the variant

PAYMENT, SESSION, RECEIPT, CASE, REFUND = "pay", "sess", "rcpt", "case", "ref"
APPROVAL, STATEMENT = "appr", "stmt"


def to_base62(number: int, length: int) -> str:
    """Write a non-negative number with exactly `length` base62 digits, zero-padded on the left."""
    pairs: list[str] = []
    for _ in range((length + 1) // 2):
        number, pair = divmod(number, 62 * 62)
        pairs.append(_PAIRS[pair])
    pairs.reverse()
    return "".join(pairs)[-length:]


def from_base62(text: str) -> int:
    """Read a number of an even count of base62 digits, all of them well-formed."""
    number = 0
    for at in range(0, len(text), 2):
        number = number * 62 * 62 + _VALUES[text[at : at + 2]]
    return number


def format_id(prefix: str, value: UUID) -> str:
    """Write an id as the API shows it, such as `pay_` and 22 base62 digits."""
    return f"{prefix}_{to_base62(value.int, UUID_CHARS)}"


def parse_id(prefix: str, raw: str) -> UUID | None:
    """Parse an id that `format_id` wrote; `None` for anything else, which is then not found."""
    if not raw.startswith(f"{prefix}_") or not _ID.fullmatch(raw):
        return None
    number = from_base62(raw[len(prefix) + 1 :])
    return UUID(int=number) if number < _MAX else None


def is_checkout_id(raw: str) -> bool:
    return _CHECKOUT_ID.fullmatch(raw) is not None


def make_timed_id(unix_ms: int, random_bits: int) -> UUID:
    """Build a UUIDv7 (RFC 9562), which sorts by time: 48 bits of time, then 74 random bits."""
    high = (unix_ms & 0xFFFF_FFFF_FFFF) << 16 | _VERSION << 12 | random_bits >> _LOW_BITS & 0xFFF
    low = _VARIANT << _LOW_BITS | random_bits & (1 << _LOW_BITS) - 1
    return UUID(int=high << 64 | low)


def unix_ms_of_timed(value: UUID) -> int:
    """Return when a timed id was created, in Unix milliseconds of its creator's clock.

    The UUIDv8 of releases before have the time at the same place.
    """
    return value.int >> 80


def mask_checkout_id(checkout_id: str) -> str:
    """Shorten a capability for a log line: readers of logs must not be able to pay or cancel."""
    return f"cs_****{checkout_id[-4:]}"
