"""Forms of operations: made of their fields, and read back into them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, cast, get_args, get_origin
from uuid import UUID, uuid4

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.operations.base import ChangeOperation, OperationType
from payintent.operations.conversion import convert_operation
from payintent.operations.fields import OperationField, list_fields

_PAIRS = 6  # names and values of a mapping that a form has
_CLEARED = '""'  # typed as at a terminal: an empty text, or a list without items
_MINUTES_CHARS = len("2026-01-31T09:30")
_EXPECTED = {
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


class WrongFieldError(RefusedError):
    """A field of a form cannot be read; the message is to stand beside it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(ErrorCode.BAD_REQUEST, message)
        self.field = field


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    name: str
    label: str
    help_text: str
    control: str
    value: str  # as it was typed; of a secret it is empty
    choices: tuple[str, ...]
    is_required: bool
    is_secret: bool
    pairs: tuple[tuple[int, str, str], ...]  # number, name and value of each row of a mapping
    is_given: bool
    error: str | None


def build_form(
    operation: OperationType, typed: Mapping[str, str], wrong: Mapping[str, str] | None = None
) -> list[FormField]:
    """Make the fields of an operation's form, with what was typed, but for secrets."""
    errors = wrong or {}
    return [
        _build_field(field, typed, _is_secret(operation, field), errors.get(field.name))
        for field in list_fields(operation)
    ]


def read_operation(operation: OperationType, typed: Mapping[str, str]) -> Any:
    """Make the operation of what was typed into its form (`BAD_REQUEST` if it cannot be read).

    What was left empty is left out, which a field with `or_reason` replaces by the reason.
    """
    values: dict[str, Any] = {}
    for field in list_fields(operation):
        value = _read_field(field, typed)
        if value is None and field.parameter.get("or_reason"):
            value = typed.get("why", "").strip() or None
        if value is not None:
            values[field.name] = value
        elif field.is_required:
            raise WrongFieldError(field.name, "is needed")
    try:
        return convert_operation(values, operation, strict=False)
    except RefusedError as refused:
        field = find_field(operation, refused.message)
        if field is None:
            raise
        message = _EXPECTED.get(_control(field), refused.message)
        raise WrongFieldError(field.name, message) from refused


def has_required(operation: OperationType, typed: Mapping[str, str]) -> bool:
    return all(
        _read_field(field, typed) is not None
        for field in list_fields(operation)
        if field.is_required
    )


def find_field(operation: OperationType, message: str) -> OperationField | None:
    """Find the field that a refusal is about: it names it in backquotes, or begins with it."""
    named = {field.name: field for field in list_fields(operation)}
    quoted = message.split("`")[1::2]
    candidates = [*(part.partition("[")[0].partition(".")[0] for part in reversed(quoted))]
    candidates.append(message.partition(" ")[0])
    return next((named[name] for name in candidates if name in named), None)


def find_wrong_field(operation: OperationType, refused: RefusedError) -> str | None:
    """Return the name of the field that a refusal is to stand beside, if it is about one."""
    if isinstance(refused, WrongFieldError):
        return refused.field
    field = find_field(operation, refused.message)
    return None if field is None else field.name


def typed_again(operation: OperationType, typed: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return names and values for hidden fields of a confirmation; never a secret."""
    names = [field.name for field in list_fields(operation) if not _is_secret(operation, field)]
    return [(name, typed[name]) for name in (*names, "why") if typed.get(name)]


def _build_field(
    field: OperationField, typed: Mapping[str, str], is_secret: bool, error: str | None
) -> FormField:
    control = _control(field)
    default = str(uuid4()) if _is_key(field) else _as_typed(field.default)
    return FormField(
        name=field.name,
        label=field.name.replace("_", " ").capitalize(),
        help_text=_help(field, control),
        control="key" if _is_key(field) else control,
        value="" if is_secret else typed.get(field.name, default),
        choices=_choices(field.type),
        is_required=field.is_required and not field.parameter.get("or_reason", False),
        is_secret=is_secret,
        pairs=tuple(_pairs(field.name, typed, is_secret=is_secret)) if control == "pairs" else (),
        is_given=bool(typed.get(field.name)),
        error=error,
    )


def _help(field: OperationField, control: str) -> str:
    """Return the help of a field for a form: some of it is about how a command is typed."""
    if control == "pairs":
        return "A name and its value in each row. What is stored is never shown again."
    if control == "lines":
        return "The lines of a CSV file."
    text = field.help_text.replace("`", "").replace("; repeat it", "")
    is_said = control != "list" or "commas" in text
    return text if is_said else f"{text} With commas."


def _control(field: OperationField) -> str:
    if _choices(field.type):
        return "choice"
    if field.parameter.get("is_file"):
        return "lines"
    return _CONTROLS.get(field.type, "text")


def _choices(field_type: Any) -> tuple[str, ...]:
    if get_origin(field_type) is Literal:
        return tuple(map(str, get_args(field_type)))
    if isinstance(field_type, type) and issubclass(field_type, Enum):
        return tuple(str(member.value) for member in field_type)
    return ()


def _is_key(field: OperationField) -> bool:
    """Tell whether a field makes a repetition harmless: each form then has one of its own."""
    return field.name == "key" and field.type is UUID


def _is_secret(operation: OperationType, field: OperationField) -> bool:
    return issubclass(operation, ChangeOperation) and field.name in operation.hidden


def _as_typed(default: Any) -> str:
    if default is None:
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, list | tuple):
        return ",".join(map(str, cast("list[object]", default)))
    return str(default.value if isinstance(default, Enum) else default)


def _read_field(field: OperationField, typed: Mapping[str, str]) -> Any:
    """Return what was typed, None if nothing was."""
    control = _control(field)
    if control == "pairs":
        return {name: value for _, name, value in _pairs(field.name, typed) if name} or None
    text = typed.get(field.name, "").strip()
    if not text:
        return None
    if control in ("list", "lines"):
        items = text.splitlines() if control == "lines" else text.split(",")
        return [item.strip() for item in items if item.strip() and text != _CLEARED]
    if control == "text" and text == _CLEARED:
        return ""
    if control == "time" and len(text) == _MINUTES_CHARS:
        return f"{text}:00"  # browsers leave seconds out where they are none
    return text


def _pairs(
    name: str, typed: Mapping[str, str], *, is_secret: bool = False
) -> list[tuple[int, str, str]]:
    return [
        (
            number,
            typed.get(f"{name}.name.{number}", "").strip(),
            "" if is_secret else typed.get(f"{name}.value.{number}", ""),
        )
        for number in range(_PAIRS)
    ]
