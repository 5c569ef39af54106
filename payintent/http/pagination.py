"""Pagination parameters: page limits, times, and cursors, which are opaque to clients."""

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID

from payintent.core.errors import BadRequestError

T = TypeVar("T")
PAGE_SIZE_MAX = 100
_PAGE_SIZE_DEFAULT = 20
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
NUMBER_BYTES = 8
ID_BYTES = 16


def read_limit(text: str | None) -> int:
    """Parse the `limit` parameter. Raises `BAD_REQUEST` unless it is from 1 to 100."""
    limit = _PAGE_SIZE_DEFAULT if text is None else parse_number(text, PAGE_SIZE_MAX)
    if not limit:
        raise BadRequestError(f"`limit` must be from 1 to {PAGE_SIZE_MAX}")
    return limit


def parse_number(text: str, maximum: int) -> int | None:
    """Parse a whole number from 0 to `maximum`. Returns None if it is invalid."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(maximum))
    return int(text) if is_number and int(text) <= maximum else None


def write_id_cursor(last_id: UUID) -> str:
    return encode_cursor(last_id.bytes)


def read_id_cursor(text: str | None) -> UUID | None:
    """Parse a cursor that contains an ID. Raises `BAD_REQUEST` if it is invalid."""
    return None if text is None else UUID(bytes=decode_cursor(text, ID_BYTES))


def write_time_cursor(created_at: datetime, last_id: UUID) -> str:
    microseconds = (created_at - _EPOCH) // timedelta(microseconds=1)
    return encode_cursor(microseconds.to_bytes(NUMBER_BYTES, "big") + last_id.bytes)


def read_time_cursor(text: str) -> tuple[datetime, UUID]:
    """Parse a cursor that contains a time and an ID. Raises `BAD_REQUEST` if it is invalid."""
    position = decode_cursor(text, NUMBER_BYTES + ID_BYTES)
    time_since_epoch = timedelta(microseconds=int.from_bytes(position[:NUMBER_BYTES], "big"))
    try:
        return _EPOCH + time_since_epoch, UUID(bytes=position[NUMBER_BYTES:])
    except OverflowError as error:
        raise _cursor_error() from error


def write_offset_cursor(offset: int) -> str:
    """Encode an offset as a cursor, for lists that never change."""
    return encode_cursor(offset.to_bytes(NUMBER_BYTES, "big"))


def read_offset_cursor(text: str | None) -> int:
    """Parse a cursor that contains an offset. Raises `BAD_REQUEST` if it is invalid."""
    return 0 if text is None else decode_number(decode_cursor(text, NUMBER_BYTES))


def encode_cursor(position: bytes) -> str:
    return base64.urlsafe_b64encode(position).decode()


def decode_cursor(text: str, length: int) -> bytes:
    try:
        position = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise _cursor_error() from error
    if len(position) != length:
        raise _cursor_error()
    return position


def decode_number(position: bytes) -> int:
    number = int.from_bytes(position, "big", signed=True)
    if number < 0:
        raise _cursor_error()
    return number


def _cursor_error() -> BadRequestError:
    return BadRequestError("`cursor` is not valid; use the `next_cursor` of a list")


_TIME_FORMAT = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)[Tt ](?P<minute>\d\d:\d\d):(?P<second>\d\d)(\.(?P<fraction>\d+))?"
    r"([Zz]|(?P<sign>[ +-])(?P<hours>\d\d):?(?P<minutes>[0-5]\d))",
    re.ASCII,
)
_MICROSECOND_DIGITS = 6
_LEAP_SECOND = "60"
_TIME_MIN = datetime.min.replace(tzinfo=UTC)
_TIME_MAX = datetime.max.replace(tzinfo=UTC)


def read_time(name: str, text: str) -> datetime:
    """Parse an RFC 3339 time, and return it in UTC, rounded up to microseconds.

    The offset's colon is optional, and its `+` may be a space, because query strings decode `+` as
    a space. Stored times have microsecond precision, so rounding up a bound does not change which
    times are below it. Times outside the range of `datetime` are clamped. Raises `BAD_REQUEST` for
    an invalid time.
    """
    match = _TIME_FORMAT.fullmatch(text)
    if match is not None:
        try:
            return _add_fraction(_parse_seconds(match), match["fraction"] or "")
        except ValueError:
            pass
    raise BadRequestError(f"`{name}` must be a time such as 2026-11-21T08:00:00Z")


def _parse_seconds(match: re.Match[str]) -> datetime:
    """Return the UTC time without fractional seconds. Raises `ValueError` if it does not exist."""
    is_leap_second = match["second"] == _LEAP_SECOND
    sign = "-" if match["sign"] == "-" else "+"
    offset = f"{sign}{match['hours']}:{match['minutes']}" if match["hours"] else "+00:00"
    second = "59" if is_leap_second else match["second"]
    local_time = datetime.fromisoformat(f"{match['date']}T{match['minute']}:{second}{offset}")
    try:
        time = local_time.astimezone(UTC)
        if not is_leap_second:
            return time
        next_second = time + timedelta(seconds=1)
    except OverflowError:
        return _TIME_MIN if local_time.year == _TIME_MIN.year else _TIME_MAX
    if next_second.time() != _TIME_MIN.time():
        raise ValueError("a leap second is the last second of a UTC day")
    return next_second


def _add_fraction(time: datetime, fraction: str) -> datetime:
    microseconds = int(fraction[:_MICROSECOND_DIGITS].ljust(_MICROSECOND_DIGITS, "0"))
    if fraction[_MICROSECOND_DIGITS:].strip("0"):
        microseconds += 1
    try:
        return time + timedelta(microseconds=microseconds)
    except OverflowError:
        return _TIME_MAX
