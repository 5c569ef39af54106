"""What the fields of operations are on the command line and in forms: an argument or an option.

A field says it beside its type: `position: Annotated[int, option("Lower ones are offered first.")]`
is `--position`. A field that says nothing is a field of the operator's routes alone.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, TypedDict, Union, Unpack, cast, get_args, get_origin

import msgspec

from payintent.operations.validation import LISTED_MAX


class ParameterForm(TypedDict, total=False):
    """How a parameter differs from the name and the type of its field."""

    name: str  # such as `count` for the field `count_max`
    metavar: str  # an argument's name in the help
    flags: str  # of a yes or no, such as `--enabled/--disabled`
    min: int
    max: int
    repeated_as: str  # of a list: the option for each item; other lists are texts with commas
    any_text: bool  # of a choice: its values are not in the help, others end with exit status 1
    is_file: bool  # of a list: what is typed names a file with a line for each item
    or_reason: bool  # left out, it is the reason


class Parameter(ParameterForm):
    """What `msgspec.Meta.extra` of a field has."""

    positional: bool


def argument(help_text: str, **form: Unpack[ParameterForm]) -> msgspec.Meta:
    return msgspec.Meta(description=help_text, extra={"positional": True, **form})


def option(help_text: str, **form: Unpack[ParameterForm]) -> msgspec.Meta:
    return msgspec.Meta(description=help_text, extra={"positional": False, **form})


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationField:
    """A field of an operation that is typed by a person; `type` is `int` for `int | None`."""

    name: str
    type: Any
    is_required: bool
    default: Any
    help_text: str
    parameter: Parameter


def list_fields(operation: type[msgspec.Struct]) -> Iterator[OperationField]:
    """Give the fields of an operation that say what they are."""
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
    """Return what an operation does: the first paragraph of its docstring."""
    return inspect.cleandoc(operation.__doc__ or "").partition("\n\n")[0]


def _without_none(field_type: Any) -> Any:
    if get_origin(field_type) not in (Union, UnionType):
        return field_type
    [given] = [member for member in get_args(field_type) if member is not NoneType]
    return given


MerchantId = Annotated[int, argument("The merchant's number.")]
OfMerchantId = Annotated[int | None, option("Of one merchant.", name="merchant")]
OwnerId = Annotated[int | None, option("Whose it is; left out: the platform's.", name="merchant")]
Purpose = Annotated[str, option("What it is for.")]
IsoCountry = Annotated[str, argument("Two capital letters.")]
ViewerCountry = Annotated[
    str, argument("Two capital letters; T1 is Tor, XX a country that the edge does not know.")
]
ListLimit = Annotated[int, option("How many at most.", min=1, max=LISTED_MAX)]
