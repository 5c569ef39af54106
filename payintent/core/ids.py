"""Format and parse ids: UUIDs internally, prefixed base62 strings in the API."""

import re
from uuid import UUID

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
UUID_CHARS = 22  # 128 bits in base62
CHECKOUT_CHARS = 16  # 95 bits, because the id is a capability (spec 2.1)

_ID = re.compile(r"[a-z]+_[0-9A-Za-z]{22}")
_CHECKOUT_ID = re.compile(r"cs_[0-9A-Za-z]{16}")
_LINK_TOKEN = re.compile(r"lnk_[0-9A-Za-z]{22}")
_PAIRS = [high + low for high in BASE62 for low in BASE62]  # halves the number of divisions
_VALUES = {pair: value for value, pair in enumerate(_PAIRS)}
_MAX = 1 << 128

TIMED_RANDOM_BITS = 74
_VERSION = 7
_VARIANT = 0b10
_LOW_BITS = 62  # random bits after the variant

PAYMENT, SESSION, RECEIPT, CASE, REFUND = "pay", "sess", "rcpt", "case", "ref"
APPROVAL, STATEMENT, PAYMENT_LINK = "appr", "stmt", "plink"


def to_base62(number: int, length: int) -> str:
    """Format a non-negative number with exactly `length` base62 digits."""
    pairs: list[str] = []
    for _ in range((length + 1) // 2):
        number, pair = divmod(number, 62 * 62)
        pairs.append(_PAIRS[pair])
    pairs.reverse()
    return "".join(pairs)[-length:]


def from_base62(text: str) -> int:
    """Parse an even number of valid base62 digits."""
    number = 0
    for index in range(0, len(text), 2):
        number = number * 62 * 62 + _VALUES[text[index : index + 2]]
    return number


def format_id(prefix: str, value: UUID) -> str:
    """Format an id for the API: a prefix such as `pay`, an underscore and 22 base62 digits."""
    return f"{prefix}_{to_base62(value.int, UUID_CHARS)}"


def parse_id(prefix: str, raw: str) -> UUID | None:
    """Parse an API id. Returns None if it is malformed."""
    if not raw.startswith(f"{prefix}_") or not _ID.fullmatch(raw):
        return None
    number = from_base62(raw[len(prefix) + 1 :])
    return UUID(int=number) if number < _MAX else None


def is_checkout_id(raw: str) -> bool:
    return _CHECKOUT_ID.fullmatch(raw) is not None


def is_link_token(raw: str) -> bool:
    return _LINK_TOKEN.fullmatch(raw) is not None


def make_timed_id(unix_ms: int, random_bits: int) -> UUID:
    """Build a UUIDv7 (RFC 9562), which sorts by time: 48 bits of time and 74 random bits."""
    high = (unix_ms & 0xFFFF_FFFF_FFFF) << 16 | _VERSION << 12 | random_bits >> _LOW_BITS & 0xFFF
    low = _VARIANT << _LOW_BITS | random_bits & (1 << _LOW_BITS) - 1
    return UUID(int=high << 64 | low)


def get_unix_ms(value: UUID) -> int:
    """Return the creation time of a timed id in Unix milliseconds.

    UUIDv8 ids from earlier releases store the time in the same bits.
    """
    return value.int >> 80


def mask_checkout_id(checkout_id: str) -> str:
    """Mask a checkout id for logs, because anyone who has it can complete or cancel the payment."""
    return f"cs_****{checkout_id[-4:]}"
