"""Convert results of operations to JSON values, for the command line and the routes."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeVar, cast
from uuid import UUID

import msgspec

from payintent.domain.price import format_rate
from payintent.evm.hex_values import to_hex
from payintent.json_format import format_timestamp

T = TypeVar("T")


def to_json_value(value: object) -> Any:
    """Convert a value to JSON; fields of records without `repr`, such as secrets, are omitted.

    Values that are already encoded stay as they are.
    """
    if value is None or isinstance(value, str | bool | int | msgspec.Raw):
        return value
    if isinstance(value, date | Decimal | UUID):
        return _text(value)
    if is_dataclass(value):
        return {
            attribute.name: to_json_value(getattr(value, attribute.name))
            for attribute in fields(value)
            if attribute.repr
        }
    if isinstance(value, Mapping):
        mapping = cast("Mapping[Any, object]", value)
        return {str(name): to_json_value(item) for name, item in mapping.items()}
    return [to_json_value(item) for item in cast("list[object]", value)]


def _text(value: date | Decimal | UUID) -> str:
    if isinstance(value, datetime):
        return format_timestamp(value)
    return format_rate(value) if isinstance(value, Decimal) else str(value)


def copy_fields(record_type: type[T], record: object, **values: Any) -> T:
    """Build a `record_type` from the equally named fields of `record`, and from `values`."""
    is_struct = issubclass(record_type, msgspec.Struct)
    named_fields = (
        msgspec.structs.fields(record_type) if is_struct else fields(cast("Any", record_type))
    )
    names = [field.name for field in named_fields if field.name not in values]
    return record_type(**{name: getattr(record, name) for name in names}, **values)


def to_hex_or_none(value: bytes | None) -> str | None:
    return None if value is None else to_hex(value)
