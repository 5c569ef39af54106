"""Pages of a list: how many entries, and the cursor that names where a page ended."""

import base64
import binascii
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

from starlette.responses import Response

from payintent.api.etag import json_response
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.storage.event_feed import FeedPosition
from payintent.storage.payment_list import LISTED_MAX

T = TypeVar("T")
_LISTED_DEFAULT = 20
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_TIME_BYTES = 8
_NUMBER_BYTES = 8
_ID_BYTES = 16


def read_limit(raw: str | None) -> int:
    """Read how many are to be listed; refused (`BAD_REQUEST`) outside 1 to 100."""
    if raw is None:
        return _LISTED_DEFAULT
    well_formed = raw.isascii() and raw.isdecimal() and len(raw) <= len(str(LISTED_MAX))
    if not well_formed or not 1 <= int(raw) <= LISTED_MAX:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"limit must be from 1 to {LISTED_MAX}")
    return int(raw)


def page_response(
    rows: Sequence[T], limit: int, fields: Callable[[T], object], cursor: Callable[[T], str]
) -> Response:
    """Answer with a page; `rows` has one row more than `limit` if another page follows."""
    answer: dict[str, object] = {"data": [fields(row) for row in rows[:limit]]}
    if len(rows) > limit:
        answer["next_cursor"] = cursor(rows[limit - 1])
    return json_response(answer)


def write_id_cursor(last_id: UUID) -> str:
    return _encode(last_id.bytes)


def read_id_cursor(raw: str | None) -> UUID | None:
    """Read the end of a page; refused (`BAD_REQUEST`) where no list has given it."""
    return None if raw is None else UUID(bytes=_decode(raw, _ID_BYTES))


def write_time_cursor(created_at: datetime, last_id: UUID) -> str:
    moment = (created_at - _EPOCH) // timedelta(microseconds=1)
    return _encode(moment.to_bytes(_TIME_BYTES, "big") + last_id.bytes)


def read_time_cursor(raw: str) -> tuple[datetime, UUID]:
    """Read the end of a page by time; refused (`BAD_REQUEST`) where no list has given it."""
    read = _decode(raw, _TIME_BYTES + _ID_BYTES)
    moment = timedelta(microseconds=int.from_bytes(read[:_TIME_BYTES], "big"))
    try:
        return _EPOCH + moment, UUID(bytes=read[_TIME_BYTES:])
    except OverflowError as error:
        raise _unknown_cursor() from error


def write_offset_cursor(skipped: int) -> str:
    """Name the end of a page of a list that never changes: how many come before the next."""
    return _encode(skipped.to_bytes(_NUMBER_BYTES, "big"))


def read_offset_cursor(raw: str | None) -> int:
    """Read how many come before a page; refused (`BAD_REQUEST`) where no list has given it."""
    if raw is None:
        return 0
    skipped = int.from_bytes(_decode(raw, _NUMBER_BYTES), "big", signed=True)
    if skipped < 0:
        raise _unknown_cursor()
    return skipped


def write_feed_cursor(position: FeedPosition) -> str:
    return _encode(position.number.to_bytes(_NUMBER_BYTES, "big") + position.event_id.bytes)


def read_feed_cursor(raw: str) -> FeedPosition:
    """Read a position in a feed; refused (`BAD_REQUEST`) if no feed can have given it."""
    read = _decode(raw, _NUMBER_BYTES + _ID_BYTES)
    number = int.from_bytes(read[:_NUMBER_BYTES], "big", signed=True)
    if number < 0:
        raise _unknown_cursor()
    return FeedPosition(number, UUID(bytes=read[_NUMBER_BYTES:]))


def _encode(position: bytes) -> str:
    return base64.urlsafe_b64encode(position).decode()


def _decode(raw: str, length: int) -> bytes:
    try:
        position = base64.b64decode(raw.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise _unknown_cursor() from error
    if len(position) != length:
        raise _unknown_cursor()
    return position


def _unknown_cursor() -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, "cursor is not one that a list has given")
