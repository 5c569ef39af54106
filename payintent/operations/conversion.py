"""Operations made of fields that came from outside: of a query, of JSON, of a form."""

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
    """Make an operation of its fields (`BAD_REQUEST`, which names the field as `` `rate` ``).

    Where it is not strict, numbers and the like may be texts.
    """
    try:
        return msgspec.convert(fields, operation, strict=strict)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"{error}".replace("`$.", "`")) from error
