"""The creation time range of a list."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from payintent.domain.errors import BadRequestError
from payintent.operations.fields import option
from payintent.operations.validation import as_utc
from payintent.storage.database import Executor, current_time

MadeSince = Annotated[datetime | None, option("Created at or after this time (UTC).")]
MadeUntil = Annotated[datetime | None, option("Created before this time (UTC).")]
OlderThan = Annotated[
    str | None, option("Created at least this long ago, such as 90s, 30m, 2h or 1d.")
]
_AGE = re.compile(r"([1-9][0-9]{0,4})(s|m|h|d)", re.ASCII)
_AGE_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True)
class MadeBetween:
    """A time range; None means no bound."""

    since: datetime | None
    until: datetime | None


async def made_between(
    database: Executor, since: datetime | None, until: datetime | None, older_than: str | None
) -> MadeBetween:
    """Parse the time range of a list (`BAD_REQUEST`); the earlier end applies."""
    since, until = as_utc("since", since), as_utc("until", until)
    if older_than is None:
        return MadeBetween(since, until)
    age = _AGE.fullmatch(older_than)
    if age is None:
        raise BadRequestError("older_than must be a number and s, m, h or d, such as 30m")
    latest = await current_time(database) - timedelta(**{_AGE_UNITS[age[2]]: int(age[1])})
    return MadeBetween(since, latest if until is None else min(latest, until))
