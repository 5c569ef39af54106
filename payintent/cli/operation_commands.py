"""Build commands from operations: `tax.set` becomes `payintent tax set`.

Fields become parameters, with the help text that they declare (`operators/fields.py`). The help
text of a command is the first paragraph of the operation's docstring.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

import msgspec
import typer

from payintent.cli.common import (
    DryRun,
    Json,
    Why,
    Yes,
    confirm,
    count_changes_as_operator,
    describe_as_operator,
    fail,
    is_at_terminal,
    print_record,
    run_as_operator,
)
from payintent.cli.results import print_result
from payintent.operations import OPERATIONS
from payintent.operators.fields import OperationField, Parameter, list_fields, summarize
from payintent.operators.operation import ChangeOperation, OperationType

#: The type that Typer parses, and a function that converts it to the field's value.
InputFormat = tuple[Any, Callable[[Any], object]]


def get_input_format(value_type: Any, parameter: Parameter, display_name: str) -> InputFormat:
    """Return the input type and parser of a field. Error messages use `display_name`."""
    if value_type is Decimal:
        return str, partial(_parse_decimal, display_name)
    if value_type == dict[str, str]:
        return str, _read_file
    if parameter.get("is_file"):
        return str, _read_lines
    if value_type == list[str]:
        return (list[str], _drop_empty_texts) if "repeated_as" in parameter else (str, _split_list)
    if parameter.get("any_text"):
        return str, partial(_check_choice, display_name, get_args(value_type))
    return value_type, lambda value: value


def _split_list(text: str) -> list[str]:
    return _drop_empty_texts(text.split(","))


def _drop_empty_texts(texts: Sequence[str]) -> list[str]:
    """Drop empty strings, so that a single empty string clears a list."""
    return [text for text in texts if text]


def _parse_decimal(display_name: str, text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        fail(f"{display_name} must be a decimal such as 0.029")


def _check_choice(display_name: str, choices: Sequence[str], text: str) -> str:
    if text not in choices:
        is_pair = len(choices) == 2  # noqa: PLR2004 - "a or b"
        choice_text = " or ".join(choices) if is_pair else f"one of {', '.join(choices)}"
        fail(f"{display_name} must be {choice_text}")
    return text


def _read_file(path: str) -> dict[str, str]:
    """Read a JSON object of strings from a file, or from standard input if `path` is `-`."""
    try:
        return msgspec.json.decode(_read_bytes(path), type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError):
        fail(f"{path} must contain a JSON object of strings")


def _read_lines(path: str) -> list[str]:
    """Read the lines of a file, or of standard input if `path` is `-`."""
    try:
        return _read_bytes(path).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        fail(f"{path} is not UTF-8")


def _read_bytes(path: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldParameter:
    """A command parameter, and the operation field that it sets."""

    field: str
    declaration: inspect.Parameter
    read: Callable[[Any], object]  # converts the argument to the field's value
    defaults_to_reason: bool  # defaults to the reason given with `--why`

    def get_value(self, arguments: Mapping[str, Any], why: str) -> object:
        value = arguments[self.declaration.name]
        if self.defaults_to_reason:
            value = value or why
        return None if value is None else self.read(value)


def add_to(group: typer.Typer, subject: str) -> None:
    for action in OPERATIONS:
        group_name, name = action.split(".")
        if group_name == subject:
            operation = OPERATIONS[action]
            group.command(name, help=summarize(operation))(_build_command(operation))


def _build_command(operation: OperationType) -> Callable[..., None]:
    """Build the function that Typer calls; its signature declares the parameters."""
    parameters = list(map(_build_parameter, list_fields(operation)))

    def command(
        *, as_json: bool, why: str = "", yes: bool = False, dry_run: bool = False, **arguments: Any
    ) -> None:
        fields = {parameter.field: parameter.get_value(arguments, why) for parameter in parameters}
        request = operation(**fields)
        if isinstance(request, ChangeOperation):
            if dry_run:
                print_record(count_changes_as_operator(request), as_json=as_json)
                return
            if request.is_destructive and not yes and is_at_terminal():
                confirm(request.action, describe_as_operator(request, why))
        print_result(request, run_as_operator(request, why), as_json=as_json)

    declarations = [parameter.declaration for parameter in parameters]
    if issubclass(operation, ChangeOperation):
        declarations += _declare_change_options(operation)
    declarations.append(_declare_parameter("as_json", bool, Json))
    cast("Any", command).__signature__ = inspect.Signature(declarations)
    return command


def _declare_change_options(operation: type[ChangeOperation[Any]]) -> Iterator[inspect.Parameter]:
    yield _declare_parameter("why", str, Why)
    if operation.is_destructive:
        yield _declare_parameter("yes", bool, Yes)
    if operation.has_dry_run:
        yield _declare_parameter("dry_run", bool, DryRun)


def _build_parameter(field: OperationField) -> FieldParameter:
    parameter, help_text = field.parameter, field.help_text
    name = parameter.get("repeated_as") or parameter.get("name", field.name)
    display_name = parameter.get("metavar", f"--{name.replace('_', '-')}")
    input_type, read = get_input_format(field.type, parameter, display_name)
    defaults_to_reason = parameter.get("defaults_to_reason", False)
    default = "" if defaults_to_reason else _get_default(field, input_type)
    if parameter["positional"]:
        typer_parameter = typer.Argument(default, metavar=parameter.get("metavar"), help=help_text)
    else:
        is_flag = field.type is bool
        typer_parameter = _build_option(parameter, default, help_text, is_flag=is_flag)
    return FieldParameter(
        field=field.name,
        declaration=_declare_parameter(name, input_type, typer_parameter),
        read=read,
        defaults_to_reason=defaults_to_reason,
    )


def _get_default(field: OperationField, input_type: Any) -> Any:
    """Return a field's default as a user would enter it, or `...` if the field is required."""
    if field.is_required:
        return ...
    if input_type is str and field.default is not None:
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


def _declare_parameter(name: str, input_type: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=input_type
    )
