"""Ids: prefixed base62 texts in the API, UUIDs inside.

Every new id says in 10 bits in which cell its row is, because an id can never change later.
Checkout ids have it sealed (`checkout_seal.py`).
"""

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

CELL_BITS = 10
CELL_MAX = (1 << CELL_BITS) - 1
TIMED_RANDOM_BITS = 64
OPAQUE_RANDOM_BITS = 90
_TIMED_VERSION = 8  # ids without a cell have version 7
_VARIANT = 0b10
#: Ids without a cell are random: one in 268 million of them has these bits, and cell 0 is asked
#: where no other cell is or has it.
_OPAQUE_MARK = 0x9C3_E51B
_OPAQUE_MARK_BITS = 28

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
    """Tell whether a text has the form of a checkout id."""
    return _CHECKOUT_ID.fullmatch(raw) is not None


def make_timed_id(unix_ms: int, cell: int, random_bits: int) -> UUID:
    """Build an id that sorts by time: a UUIDv8 (RFC 9562) of 48 bits of time, cell and chance."""
    high = (unix_ms & 0xFFFF_FFFF_FFFF) << 80 | _TIMED_VERSION << 76 | cell << 66
    low = _VARIANT << 62 | random_bits & 0x3FFF_FFFF_FFFF_FFFF
    return UUID(int=high | (random_bits >> 62 & 0b11) << 64 | low)


def unix_ms_of_timed(value: UUID) -> int:
    """Return when a timed id was made, in Unix milliseconds of the clock that it was made by.

    The ids from before (UUIDv7) have it at the same place.
    """
    return value.int >> 80


def make_opaque_id(cell: int, random_bits: int) -> UUID:
    """Build an id that reveals no time: 90 random bits, a mark and the cell."""
    marked = random_bits << _OPAQUE_MARK_BITS | _OPAQUE_MARK
    return UUID(int=marked << CELL_BITS | cell)


def cell_of_timed(value: UUID) -> int:
    """Return the cell that an id of `make_timed_id` names; 0 for one from before."""
    return value.int >> 66 & CELL_MAX if value.version == _TIMED_VERSION else 0


def cell_of_opaque(value: UUID) -> int:
    """Return the cell that an id of `make_opaque_id` names; 0 for one from before."""
    marked = value.int >> CELL_BITS & (1 << _OPAQUE_MARK_BITS) - 1 == _OPAQUE_MARK
    return value.int & CELL_MAX if marked else 0


def mask_checkout_id(checkout_id: str) -> str:
    """Shorten a capability for a log line: readers of logs must not be able to pay or cancel."""
    return f"cs_****{checkout_id[-4:]}"
