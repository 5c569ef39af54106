"""Pages of lists: the number of entries, and cursors, which are opaque to clients."""

import base64
import binascii
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

from starlette.responses import Response

from payintent.api.etag import json_response
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.storage.payment_list import LISTED_MAX

T = TypeVar("T")
_LISTED_DEFAULT = 20
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
NUMBER_BYTES = 8
ID_BYTES = 16


def read_limit(raw: str | None) -> int:
    """Read the number of entries of a page (`BAD_REQUEST` outside 1 to 100)."""
    if raw is None:
        return _LISTED_DEFAULT
    is_number = raw.isascii() and raw.isdecimal() and len(raw) <= len(str(LISTED_MAX))
    if not is_number or not 1 <= int(raw) <= LISTED_MAX:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"limit must be from 1 to {LISTED_MAX}")
    return int(raw)


def page_response(
    rows: Sequence[T], limit: int, fields: Callable[[T], object], cursor: Callable[[T], str]
) -> Response:
    """Respond with a page; `rows` has `limit + 1` rows if a page follows."""
    page: dict[str, object] = {"data": [fields(row) for row in rows[:limit]]}
    if len(rows) > limit:
        page["next_cursor"] = cursor(rows[limit - 1])
    return json_response(page)


def write_id_cursor(last_id: UUID) -> str:
    return encode_cursor(last_id.bytes)


def read_id_cursor(raw: str | None) -> UUID | None:
    """Read the id of the last entry before a page (`BAD_REQUEST` if the cursor is invalid)."""
    return None if raw is None else UUID(bytes=decode_cursor(raw, ID_BYTES))


def write_time_cursor(created_at: datetime, last_id: UUID) -> str:
    microseconds = (created_at - _EPOCH) // timedelta(microseconds=1)
    return encode_cursor(microseconds.to_bytes(NUMBER_BYTES, "big") + last_id.bytes)


def read_time_cursor(raw: str) -> tuple[datetime, UUID]:
    """Read time and id of the last entry before a page (`BAD_REQUEST`)."""
    position = decode_cursor(raw, NUMBER_BYTES + ID_BYTES)
    since_epoch = timedelta(microseconds=int.from_bytes(position[:NUMBER_BYTES], "big"))
    try:
        return _EPOCH + since_epoch, UUID(bytes=position[NUMBER_BYTES:])
    except OverflowError as error:
        raise invalid_cursor() from error


def write_offset_cursor(offset: int) -> str:
    """Write a cursor of a list that never changes: the number of entries before the page."""
    return encode_cursor(offset.to_bytes(NUMBER_BYTES, "big"))


def read_offset_cursor(raw: str | None) -> int:
    """Read the number of entries before a page (`BAD_REQUEST`)."""
    return 0 if raw is None else decode_number(decode_cursor(raw, NUMBER_BYTES))


def encode_cursor(position: bytes) -> str:
    return base64.urlsafe_b64encode(position).decode()


def decode_cursor(raw: str, length: int) -> bytes:
    try:
        position = base64.b64decode(raw.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid_cursor() from error
    if len(position) != length:
        raise invalid_cursor()
    return position


def decode_number(encoded: bytes) -> int:
    number = int.from_bytes(encoded, "big", signed=True)
    if number < 0:
        raise invalid_cursor()
    return number


def invalid_cursor() -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, "cursor is not one that a list has given")
