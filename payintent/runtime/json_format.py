"""JSON encoding of timestamps and of strings with lone surrogates."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

import msgspec

_encode = msgspec.json.Encoder().encode
_SURROGATE = re.compile("[\ud800-\udfff]")


def format_timestamp(moment: datetime) -> str:
    """Format a UTC time as RFC 3339 with milliseconds and `Z`."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def encode_json(fields: Mapping[str, Any]) -> bytes:
    """Encode compact JSON. Lone surrogates are escaped, and `msgspec.Raw` values are unchanged."""
    try:
        return _encode(fields)
    except UnicodeEncodeError:
        return _encode(_escape_surrogates(fields))


def _escape_surrogates(value: Any) -> Any:
    if isinstance(value, str) and _SURROGATE.search(value):
        return msgspec.Raw(json.dumps(value).encode())
    if isinstance(value, dict):
        return {
            name: _escape_surrogates(item) for name, item in cast("dict[str, Any]", value).items()
        }
    if isinstance(value, list):
        return [_escape_surrogates(item) for item in cast("list[Any]", value)]
    return value
