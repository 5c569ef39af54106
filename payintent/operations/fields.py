"""What the fields of operations are on the command line: an argument or an option, with its help.

A field says it beside its type: `position: Annotated[int, option("Lower ones are offered first.")]`
is `--position`. A field that says nothing is a field of the operator's routes alone.
"""

from typing import Annotated, TypedDict, Unpack

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
    or_reason: bool  # left out, it is the reason


class Parameter(ParameterForm):
    """What `msgspec.Meta.extra` of a field has."""

    positional: bool


def argument(help_text: str, **form: Unpack[ParameterForm]) -> msgspec.Meta:
    """Make a field an argument of its command."""
    return msgspec.Meta(description=help_text, extra={"positional": True, **form})


def option(help_text: str, **form: Unpack[ParameterForm]) -> msgspec.Meta:
    """Make a field an option of its command."""
    return msgspec.Meta(description=help_text, extra={"positional": False, **form})


MerchantId = Annotated[int, argument("The merchant's number.")]
OfMerchantId = Annotated[int | None, option("Of one merchant.", name="merchant")]
OwnerId = Annotated[int | None, option("Whose it is; left out: the platform's.", name="merchant")]
Purpose = Annotated[str, option("What it is for.")]
IsoCountry = Annotated[str, argument("Two capital letters.")]
ListLimit = Annotated[int, option("How many at most.", min=1, max=LISTED_MAX)]
