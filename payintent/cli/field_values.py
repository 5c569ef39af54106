"""Parse values of types that Typer does not support."""

import sys
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import Any, get_args

import msgspec

from payintent.cli.common import fail
from payintent.operations.fields import Parameter

#: The type that Typer reads, and the function that converts it to the field's value.
ValueForm = tuple[Any, Callable[[Any], object]]


def get_value_form(value_type: Any, parameter: Parameter, display_name: str) -> ValueForm:
    """Return the input type and the parser of a field; messages use `display_name`."""
    if value_type is Decimal:
        return str, partial(_read_decimal, display_name)
    if value_type == dict[str, str]:
        return str, _read_file
    if parameter.get("is_file"):
        return str, _read_lines
    if value_type == list[str]:
        return (list[str], _drop_empty) if "repeated_as" in parameter else (str, _split_list)
    if parameter.get("any_text"):
        return str, partial(_check_choice, display_name, get_args(value_type))
    return value_type, lambda value: value


def _split_list(text: str) -> list[str]:
    return _drop_empty(text.split(","))


def _drop_empty(texts: Sequence[str]) -> list[str]:
    """Drop empty texts; a single empty text clears a list."""
    return [text for text in texts if text]


def _read_decimal(display_name: str, text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        fail(f"{display_name} must be a decimal such as 0.029")


def _check_choice(display_name: str, choices: Sequence[str], text: str) -> str:
    if text not in choices:
        is_pair = len(choices) == 2  # noqa: PLR2004 - "a or b"
        allowed = " or ".join(choices) if is_pair else f"one of {', '.join(choices)}"
        fail(f"{display_name} must be {allowed}")
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
