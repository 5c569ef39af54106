"""Build records from rows."""

from collections.abc import Callable
from typing import Any, TypeVar

from payintent.storage.database import Row

Record = TypeVar("Record")


def build(record: Callable[..., Record], row: Row, **values: Any) -> Record:
    """Build a slotted dataclass from the columns named like its fields.

    `values` supplies the fields without a column, or with a different type than the column.
    """
    names: tuple[str, ...] = getattr(record, "__slots__")  # noqa: B009
    return record(**{name: row[name] for name in names if name not in values} | values)
