"""Create operations from a query, a JSON body or a form."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from payintent.domain.errors import BadRequestError, NotFoundError
from payintent.operations.base import OperationType

T = TypeVar("T", bound=msgspec.Struct)


def find_operation(operations: Mapping[str, OperationType], action: str) -> OperationType:
    operation = operations.get(action)
    if operation is None:
        raise NotFoundError("no such operation")
    return operation


def convert_operation(fields: Mapping[str, Any], operation: type[T], *, strict: bool) -> T:
    """Create an operation; raise `BAD_REQUEST` that names a wrong field, such as `` `rate` ``.

    If `strict` is false, numbers and booleans may be given as text.
    """
    try:
        return msgspec.convert(fields, operation, strict=strict)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"{error}".replace("`$.", "`")) from error
