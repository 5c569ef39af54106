"""What operations give, as JSON values: the same for the command line and the routes."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

from payintent.domain.quote import format_rate
from payintent.payments.serialization import format_timestamp


def to_json_value(value: object) -> Any:
    """Turn records, times, amounts and ids into JSON values; secrets' bytes are left out."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, datetime | Decimal | UUID):
        return _text(value)
    if is_dataclass(value):
        return {
            one.name: to_json_value(getattr(value, one.name)) for one in fields(value) if one.repr
        }
    if isinstance(value, Mapping):
        known = cast("Mapping[Any, object]", value)
        return {str(name): to_json_value(one) for name, one in known.items()}
    return [to_json_value(one) for one in cast("list[object]", value)]


def _text(value: datetime | Decimal | UUID) -> str:
    if isinstance(value, datetime):
        return format_timestamp(value)
    return format_rate(value) if isinstance(value, Decimal) else str(value)
