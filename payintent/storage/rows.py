"""Records of rows."""

from collections.abc import Callable
from typing import Any, TypeVar

from payintent.storage.database import Row

Record = TypeVar("Record")


def build(record: Callable[..., Record], row: Row, **values: Any) -> Record:
    """Build a dataclass with slots from the columns that have its fields' names.

    `values` has the fields that are no column, or another type than it.
    """
    names: tuple[str, ...] = getattr(record, "__slots__")  # noqa: B009
    return record(**{name: row[name] for name in names if name not in values} | values)
