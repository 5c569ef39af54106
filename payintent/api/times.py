"""Parsing of RFC 3339 times as clients write them."""

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
    """Parse an RFC 3339 time to UTC, rounded up to microseconds (`BAD_REQUEST` otherwise).

    The offset needs no colon, and its `+` may have become a space, as in a query. Stored times
    are no finer than microseconds: rounded up, a bound divides them as the exact time does. A time
    outside the range of UTC datetimes becomes the first or the last one.
    """
    match = _TIME.fullmatch(raw)
    if match is not None:
        try:
            return _rounded_up(_in_utc(match), match["fraction"] or "")
        except ValueError:
            pass
    raise RefusedError(ErrorCode.BAD_REQUEST, f"{name} must be a time such as 2026-11-21T08:00:00Z")


def _in_utc(match: re.Match[str]) -> datetime:
    """Return the whole second; ValueError where there is no such time."""
    leaps = match["second"] == _LEAP_SECOND
    sign = "-" if match["sign"] == "-" else "+"
    offset = f"{sign}{match['hours']}:{match['minutes']}" if match["hours"] else "+00:00"
    second = "59" if leaps else match["second"]
    local = datetime.fromisoformat(f"{match['date']}T{match['minute']}:{second}{offset}")
    try:
        moment = local.astimezone(UTC)
        if not leaps:
            return moment
        following = moment + timedelta(seconds=1)
    except OverflowError:
        return _FIRST if local.year == _FIRST.year else _LAST
    if following.time() != _FIRST.time():
        raise ValueError("a leap second is the last one of a day of UTC")
    return following


def _rounded_up(moment: datetime, fraction: str) -> datetime:
    microseconds = int(fraction[:_MICROSECOND_DIGITS].ljust(_MICROSECOND_DIGITS, "0"))
    if fraction[_MICROSECOND_DIGITS:].strip("0"):
        microseconds += 1
    try:
        return moment + timedelta(microseconds=microseconds)
    except OverflowError:
        return _LAST
