"""Commands made of operations: `tax.set` is `payintent tax set`, its fields are its parameters.

The help of a command is the first paragraph of its operation's docstring; that of an argument or an
option stands beside the field, in the form of `operations/fields.py`.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import typer

from payintent.cli.common import (
    Json,
    Why,
    describe_as_operator,
    foresee_as_operator,
    print_record,
    run_as_operator,
)
from payintent.cli.confirmation import DryRun, Yes, confirm, is_at_terminal
from payintent.cli.field_values import get_value_form
from payintent.cli.results import print_result
from payintent.operations.base import ChangeOperation, OperationType
from payintent.operations.fields import OperationField, Parameter, list_fields, summarize
from payintent.operations.registry import OPERATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldParameter:
    """A parameter of a command, and the field of the operation that it gives."""

    field: str
    declaration: inspect.Parameter
    read: Callable[[Any], object]
    or_reason: bool

    def get_value(self, given: Mapping[str, Any], why: str) -> object:
        value = given[self.declaration.name]
        if self.or_reason:
            value = value or why
        return None if value is None else self.read(value)


def add_to(group: typer.Typer, subject: str) -> None:
    for action in OPERATIONS:
        first, name = action.split(".")
        if first == subject:
            operation = OPERATIONS[action]
            group.command(name, help=summarize(operation))(_build_command(operation))


def _build_command(operation: OperationType) -> Callable[..., None]:
    """Make the function that Typer calls; its signature tells Typer the parameters."""
    parameters = list(map(_build_parameter, list_fields(operation)))

    def command(
        *, as_json: bool, why: str = "", yes: bool = False, dry_run: bool = False, **given: Any
    ) -> None:
        fields = {parameter.field: parameter.get_value(given, why) for parameter in parameters}
        request = operation(**fields)
        if isinstance(request, ChangeOperation):
            if dry_run:
                print_record(foresee_as_operator(request), as_json=as_json)
                return
            if request.is_destructive and not yes and is_at_terminal():
                confirm(request.action, describe_as_operator(request, why))
        print_result(request, run_as_operator(request, why), as_json=as_json)

    declarations = [parameter.declaration for parameter in parameters]
    if issubclass(operation, ChangeOperation):
        declarations += _declare_of_change(operation)
    declarations.append(_declare("as_json", bool, Json))
    cast("Any", command).__signature__ = inspect.Signature(declarations)
    return command


def _declare_of_change(operation: type[ChangeOperation[Any]]) -> Iterator[inspect.Parameter]:
    """Give the options that a change has beside its fields."""
    yield _declare("why", str, Why)
    if operation.is_destructive:
        yield _declare("yes", bool, Yes)
    if operation.has_dry_run:
        yield _declare("dry_run", bool, DryRun)


def _build_parameter(field: OperationField) -> FieldParameter:
    """Make the parameter of a field of what stands beside its type."""
    parameter = field.parameter
    name = parameter.get("repeated_as") or parameter.get("name", field.name)
    shown_name = parameter.get("metavar", f"--{name.replace('_', '-')}")
    typed_as, read = get_value_form(field.type, parameter, shown_name)
    or_reason = parameter.get("or_reason", False)
    default = "" if or_reason else _get_default(field, typed_as)
    if parameter["positional"]:
        shown = typer.Argument(default, metavar=parameter.get("metavar"), help=field.help_text)
    else:
        shown = _build_option(parameter, default, field.help_text, is_flag=field.type is bool)
    return FieldParameter(
        field=field.name,
        declaration=_declare(name, typed_as, shown),
        read=read,
        or_reason=or_reason,
    )


def _get_default(field: OperationField, typed_as: Any) -> Any:
    """Give a field's default as it would be typed; `...` says that there is none."""
    if field.is_required:
        return ...
    if typed_as is str and field.default is not None:
        return str(field.default)
    return field.default


def _build_option(parameter: Parameter, default: Any, help_text: str, *, is_flag: bool) -> Any:
    names = [parameter["flags"]] if "flags" in parameter else []
    return typer.Option(
        default,
        *names,
        help=help_text,
        min=parameter.get("min"),
        max=parameter.get("max"),
        show_default=not is_flag,
    )


def _declare(name: str, typed_as: Any, shown: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=shown, annotation=typed_as
    )
