"""Parsing of RFC 3339 times in query parameters."""

import re
from datetime import UTC, datetime, timedelta

from payintent.domain.errors import ErrorCode, RefusedError

_TIME = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)[Tt ](?P<minute>\d\d:\d\d):(?P<second>\d\d)(\.(?P<fraction>\d+))?"
    r"([Zz]|(?P<sign>[ +-])(?P<hours>\d\d):?(?P<minutes>[0-5]\d))",
    re.ASCII,
)
_MICROSECOND_DIGITS = 6
_LEAP_SECOND = "60"
_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


def read_time(name: str, raw: str) -> datetime:
    """Parse an RFC 3339 time to UTC, rounded up to microseconds (`BAD_REQUEST`).

    The colon of the offset is optional, and its `+` may be a space, which it becomes in a query.
    Stored times have microseconds, so rounding up a bound does not change which of them are below
    it. A time beyond the range of `datetime` becomes the first or last `datetime`.
    """
    match = _TIME.fullmatch(raw)
    if match is not None:
        try:
            return _add_fraction(_parse_seconds(match), match["fraction"] or "")
        except ValueError:
            pass
    raise RefusedError(ErrorCode.BAD_REQUEST, f"{name} must be a time such as 2026-11-21T08:00:00Z")


def _parse_seconds(match: re.Match[str]) -> datetime:
    """Return the time in UTC without its fraction (`ValueError` if it does not exist)."""
    is_leap_second = match["second"] == _LEAP_SECOND
    sign = "-" if match["sign"] == "-" else "+"
    offset = f"{sign}{match['hours']}:{match['minutes']}" if match["hours"] else "+00:00"
    second = "59" if is_leap_second else match["second"]
    local = datetime.fromisoformat(f"{match['date']}T{match['minute']}:{second}{offset}")
    try:
        moment = local.astimezone(UTC)
        if not is_leap_second:
            return moment
        next_second = moment + timedelta(seconds=1)
    except OverflowError:
        return _FIRST if local.year == _FIRST.year else _LAST
    if next_second.time() != _FIRST.time():
        raise ValueError("a leap second is the last second of a UTC day")
    return next_second


def _add_fraction(moment: datetime, fraction: str) -> datetime:
    microseconds = int(fraction[:_MICROSECOND_DIGITS].ljust(_MICROSECOND_DIGITS, "0"))
    if fraction[_MICROSECOND_DIGITS:].strip("0"):
        microseconds += 1
    try:
        return moment + timedelta(microseconds=microseconds)
    except OverflowError:
        return _LAST
