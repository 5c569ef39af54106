"""Describe the fields of operations as command line arguments, options and form fields.

A field is annotated: `position: Annotated[int, option("Lower values are offered first.")]` is the
option `--position`. A field without an annotation exists only in the operator routes.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, TypedDict, Union, Unpack, cast, get_args, get_origin

import msgspec

from payintent.operations.validation import LISTED_MAX


class ParameterForm(TypedDict, total=False):
    """How a parameter differs from its field's name and type."""

    name: str  # such as `count` for the field `count_max`
    metavar: str  # an argument's name in the help
    flags: str  # for a boolean, such as `--enabled/--disabled`
    min: int
    max: int
    repeated_as: str  # for a list: the option of a single item; the default is a list with commas
    any_text: bool  # for a choice: omit the values from the help; a wrong value exits with 1
    is_file: bool  # for a list: the value is the path of a file with an item per line
    or_reason: bool  # defaults to the reason of the change


class Parameter(ParameterForm):
    """The value of `msgspec.Meta.extra`."""

    positional: bool


def argument(help_text: str, **form: Unpack[ParameterForm]) -> msgspec.Meta:
    return msgspec.Meta(description=help_text, extra={"positional": True, **form})


def option(help_text: str, **form: Unpack[ParameterForm]) -> msgspec.Meta:
    return msgspec.Meta(description=help_text, extra={"positional": False, **form})


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationField:
    """A field that a person enters; `type` is `int` for `int | None`."""

    name: str
    type: Any
    is_required: bool
    default: Any
    help_text: str
    parameter: Parameter


def list_fields(operation: type[msgspec.Struct]) -> Iterator[OperationField]:
    """List the annotated fields of an operation."""
    for field in msgspec.structs.fields(operation):
        if get_origin(field.type) is not Annotated:
            continue
        annotated, meta = get_args(field.type)
        yield OperationField(
            name=field.name,
            type=_without_none(annotated),
            is_required=field.required,
            default=None if field.required else field.default,
            help_text=meta.description,
            parameter=cast("Parameter", meta.extra),
        )


def summarize(operation: type[msgspec.Struct]) -> str:
    """Return the first paragraph of an operation's docstring."""
    return inspect.cleandoc(operation.__doc__ or "").partition("\n\n")[0]


def _without_none(field_type: Any) -> Any:
    if get_origin(field_type) not in (Union, UnionType):
        return field_type
    [member] = [member for member in get_args(field_type) if member is not NoneType]
    return member


MerchantId = Annotated[int, argument("The number of the merchant.")]
OfMerchantId = Annotated[int | None, option("Only of this merchant.", name="merchant")]
OwnerId = Annotated[
    int | None, option("The merchant who owns it; default: the platform.", name="merchant")
]
Purpose = Annotated[str, option("A name for its purpose.")]
IsoCountry = Annotated[str, argument("Two capital letters.")]
ViewerCountry = Annotated[
    str, argument("Two capital letters. T1 is Tor, XX is an unknown country.")
]
ListLimit = Annotated[int, option("Maximum number of entries.", min=1, max=LISTED_MAX)]
