"""Build HTML forms from operations, and parse submitted forms into operations."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, cast, get_args, get_origin
from uuid import UUID, uuid4

from payintent.console.rendering import format_label
from payintent.core.errors import ErrorCode, RefusedError
from payintent.operators.fields import OperationField, list_fields
from payintent.operators.operation import ChangeOperation, OperationType
from payintent.operators.submit import convert_operation

_PAIR_ROWS = 6  # form rows for a mapping
_EMPTY_LITERAL = '""'  # sets an empty string or list, as on the command line
_MINUTES_CHARS = len("2026-01-31T09:30")
_CONTROL_ERRORS = {
    "whole": "must be a whole number",
    "number": "must be a number such as 0.07",
    "time": "must be a time such as 2026-01-31T09:30:00",
    "id": "must be an id such as 01a1fd8e-30f1-7452-8742-48e063df9146",
    "choice": "must be one of the choices",
    "flag": "must be yes or no",
}
_CONTROLS: dict[Any, str] = {
    bool: "flag",
    int: "whole",
    Decimal: "number",
    datetime: "time",
    UUID: "id",
    list[str]: "list",
    dict[str, str]: "pairs",
}


class InvalidFieldError(RefusedError):
    """A form field has an invalid value. The message is shown next to the field."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(ErrorCode.BAD_REQUEST, message)
        self.field = field


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    name: str
    label: str
    help_text: str
    control: str
    value: str  # empty if the field is secret
    choices: tuple[str, ...]
    is_required: bool
    is_secret: bool
    pairs: tuple[tuple[int, str, str], ...]  # row number, key and value of each mapping entry
    is_filled: bool
    error: str | None


def build_form(
    operation: OperationType, form: Mapping[str, str], wrong: Mapping[str, str] | None = None
) -> list[FormField]:
    """Build an operation's form fields, filled with the values in `form` except secrets."""
    errors = wrong or {}
    return [
        _build_field(field, form, _is_secret(operation, field), errors.get(field.name))
        for field in list_fields(operation)
    ]


def read_operation(operation: OperationType, form: Mapping[str, str]) -> Any:
    """Build an operation from a submitted form; raise `BAD_REQUEST` for an invalid value.

    Empty fields are omitted. An empty field marked `defaults_to_reason` defaults to the reason.
    """
    values: dict[str, Any] = {}
    for field in list_fields(operation):
        value = _read_field(field, form)
        if value is None and field.parameter.get("defaults_to_reason"):
            value = form.get("why", "").strip() or None
        if value is not None:
            values[field.name] = value
        elif field.is_required:
            raise InvalidFieldError(field.name, "is required")
    try:
        return convert_operation(values, operation, strict=False)
    except RefusedError as refusal:
        field = find_field(operation, refusal.message)
        if field is None:
            raise
        message = _CONTROL_ERRORS.get(_choose_control(field), refusal.message)
        raise InvalidFieldError(field.name, message) from refusal


def has_required_fields(operation: OperationType, form: Mapping[str, str]) -> bool:
    return all(
        _read_field(field, form) is not None
        for field in list_fields(operation)
        if field.is_required
    )


def find_field(operation: OperationType, message: str) -> OperationField | None:
    """Find the field that an error message mentions, in backticks or as its first word."""
    fields = {field.name: field for field in list_fields(operation)}
    quoted_names = message.split("`")[1::2]
    candidates = [
        *(quoted_name.partition("[")[0].partition(".")[0] for quoted_name in reversed(quoted_names))
    ]
    candidates.append(message.partition(" ")[0])
    return next((fields[name] for name in candidates if name in fields), None)


def find_invalid_field(operation: OperationType, refusal: RefusedError) -> str | None:
    """Return the name of the form field that an error is about, which can be the reason."""
    if isinstance(refusal, InvalidFieldError):
        return refusal.field
    if refusal.message.startswith("why "):
        return "why"
    field = find_field(operation, refusal.message)
    return None if field is None else field.name


def list_hidden_fields(operation: OperationType, form: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the hidden fields of a confirmation form, as names and values without secrets."""
    names = [field.name for field in list_fields(operation) if not _is_secret(operation, field)]
    return [(name, form[name]) for name in (*names, "why") if form.get(name)]


def _build_field(
    field: OperationField, form: Mapping[str, str], is_secret: bool, error: str | None
) -> FormField:
    control = _choose_control(field)
    default = str(uuid4()) if _is_idempotency_key(field) else _format_default(field.default)
    return FormField(
        name=field.name,
        label=format_label(field.name),
        help_text=_format_help(field, control),
        control="key" if _is_idempotency_key(field) else control,
        value="" if is_secret else form.get(field.name, default),
        choices=_list_choices(field.type),
        is_required=field.is_required and not field.parameter.get("defaults_to_reason", False),
        is_secret=is_secret,
        pairs=tuple(_read_pairs(field.name, form, is_secret=is_secret))
        if control == "pairs"
        else (),
        is_filled=bool(form.get(field.name)),
        error=error,
    )


def _format_help(field: OperationField, control: str) -> str:
    """Return a field's help text without the parts about the command line."""
    if control == "pairs":
        return "One name and value per row. Stored values are never shown again."
    if control == "lines":
        return "The lines of a CSV file."
    text = field.help_text.replace("`", "").replace("; repeat it", "")
    if control == "list" and "commas" not in text:
        return f"{text} Separate items with commas."
    return text


def _choose_control(field: OperationField) -> str:
    if _list_choices(field.type):
        return "choice"
    if field.parameter.get("is_file"):
        return "lines"
    return _CONTROLS.get(field.type, "text")


def _list_choices(field_type: Any) -> tuple[str, ...]:
    if get_origin(field_type) is Literal:
        return tuple(map(str, get_args(field_type)))
    if isinstance(field_type, type) and issubclass(field_type, Enum):
        return tuple(str(member.value) for member in field_type)
    return ()


def _is_idempotency_key(field: OperationField) -> bool:
    """Return whether the field is an idempotency key. Every new form generates a key."""
    return field.name == "key" and field.type is UUID


def _is_secret(operation: OperationType, field: OperationField) -> bool:
    return issubclass(operation, ChangeOperation) and field.name in operation.secret_fields


def _format_default(default: Any) -> str:
    if default is None:
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, list | tuple):
        return ",".join(map(str, cast("list[object]", default)))
    return str(default.value if isinstance(default, Enum) else default)


def _read_field(field: OperationField, form: Mapping[str, str]) -> Any:
    """Return a field's submitted value; None if it is empty."""
    control = _choose_control(field)
    if control == "pairs":
        return {name: value for _, name, value in _read_pairs(field.name, form) if name} or None
    text = form.get(field.name, "").strip()
    if not text:
        return None
    if control in ("list", "lines"):
        items = text.splitlines() if control == "lines" else text.split(",")
        return [item.strip() for item in items if item.strip() and text != _EMPTY_LITERAL]
    if control == "text" and text == _EMPTY_LITERAL:
        return ""
    if control == "time" and len(text) == _MINUTES_CHARS:
        return f"{text}:00"  # browsers omit zero seconds
    return text


def _read_pairs(
    name: str, form: Mapping[str, str], *, is_secret: bool = False
) -> list[tuple[int, str, str]]:
    return [
        (
            number,
            form.get(f"{name}.name.{number}", "").strip(),
            "" if is_secret else form.get(f"{name}.value.{number}", ""),
        )
        for number in range(_PAIR_ROWS)
    ]
