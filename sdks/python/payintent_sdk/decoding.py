"""Decode JSON into dataclasses, using their type hints. Unknown fields are ignored."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from datetime import datetime, timezone
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from payintent_sdk.errors import UnreadableAnswerError
from payintent_sdk.events import KINDS, Event, UnknownEvent

T = TypeVar("T")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z", re.ASCII)
_MICROSECONDS = 6


def decode(kind: type[T], value: Any) -> T:
    """Build a dataclass from decoded JSON. Raises `UnreadableAnswerError` if it does not match."""
    try:
        return _decode(kind, value)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UnreadableAnswerError(f"cannot read {kind.__name__}: {error}") from error


def decode_event(value: Any) -> Event:
    """Build an event. An event of an unknown type becomes an `UnknownEvent`."""
    event = as_object(value)
    name = event.get("type")
    if not isinstance(name, str):
        raise UnreadableAnswerError("cannot read Event: `type` is missing")
    if name in KINDS:
        return decode(KINDS[name], event)
    timestamp = event.get("timestamp")
    at = parse_time(timestamp) if isinstance(timestamp, str) else None
    return UnknownEvent(type=name, timestamp=at, data=as_object(event.get("data")))


def as_object(value: Any) -> dict[str, Any]:
    """Return decoded JSON if it is an object, otherwise an empty object."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def parse_time(text: str) -> datetime:
    """Parse a timestamp from the service (RFC 3339 in UTC)."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"invalid time: {text!r}")
    seconds, fraction = found.groups()
    digits = (fraction or "")[:_MICROSECONDS].ljust(_MICROSECONDS, "0")
    return datetime.fromisoformat(f"{seconds}.{digits}").replace(tzinfo=timezone.utc)


def _decode(kind: Any, value: Any) -> Any:
    if kind is Event:
        return decode_event(value)
    if get_origin(kind) in (Union, UnionType):
        members = [member for member in get_args(kind) if member is not type(None)]
        return None if value is None else _decode(members[-1], value)
    if get_origin(kind) is list:
        return [_decode(get_args(kind)[0], item) for item in value]
    if kind is datetime:
        return parse_time(value)
    if is_dataclass(kind):
        return _decode_object(kind, value)
    return value


def _decode_object(kind: Any, value: Any) -> Any:
    if not isinstance(value, dict):
        raise TypeError("expected an object")
    hints = _hints(kind)
    return kind(
        **{name: _decode(hint, value[name]) for name, hint in hints.items() if name in value}
    )


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
