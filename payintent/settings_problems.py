"""What is wrong with the environment, in words: values that cannot be, and names that are none."""

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from payintent.config import Settings

_PREFIX = "PAYINTENT_"
#: Variables with our prefix that are no settings.
_OTHERS = frozenset({"PAYINTENT_OPERATOR_TOKEN"})
#: Kubernetes tells containers the addresses of services: a name with this end, others beside it.
_HOST_OF_KUBERNETES = "_SERVICE_HOST"
_OF_KUBERNETES = re.compile(
    r"_SERVICE_HOST|_SERVICE_PORT(?:_[A-Z0-9_]+)?"
    r"|_PORT(?:_[0-9]{1,5}_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?"
)
_WITHOUT_PREFIX = frozenset({"database_url", "database_direct_url", "database_read_url"})
_SHOWN_CHARS = 40
_BOUNDS = (("ge", "at least"), ("gt", "above"), ("le", "at most"))
_NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number", Decimal: "a number"}


def variable_of(field: str) -> str:
    """Return the environment's name of a setting."""
    return field.upper() if field in _WITHOUT_PREFIX else f"{_PREFIX}{field.upper()}"


def problem_lines(error: ValidationError) -> list[str]:
    """Say of each setting what is wrong and what is allowed; values of texts are not repeated."""
    missing: list[str] = []
    lines: list[str] = []
    for item in error.errors(include_url=False):
        field = _field_of(item["loc"])
        if item["type"] == "missing" or item["type"] == "string_too_short":
            missing.append(variable_of(field))
        else:
            lines.append(_line(field, item["msg"].removeprefix("Value error, "), item["input"]))
    return [f"{name} is missing" for name in missing] + lines


def _field_of(location: tuple[int | str, ...]) -> str:
    """Return the setting that an error is about; empty where it is about several."""
    name = str(location[0]).lower() if location else ""
    return name.removeprefix(_PREFIX.lower())


def _line(field: str, message: str, value: object) -> str:
    if not field:
        return message
    name = variable_of(field)
    allowed = _allowed(Settings.model_fields[field])
    if not allowed:
        return f"{name} {message}"
    shown = repr(str(value)[:_SHOWN_CHARS])
    return f"{name} is {shown} and must be {allowed}"


def _allowed(field: FieldInfo) -> str:
    """Say which values a setting may have; empty for texts, whose own checks say it."""
    if get_origin(field.annotation) is Literal:
        return f"one of {', '.join(get_args(field.annotation))}"
    if field.annotation is bool:
        return "true or false"
    noun = _NUMBERS.get(field.annotation)
    return f"{noun}, {' and '.join(_bounds(field.metadata))}" if noun else ""


def _bounds(metadata: Iterable[Any]) -> Iterator[str]:
    for bound, words in _BOUNDS:
        for item in metadata:
            if hasattr(item, bound):
                yield f"{words} {getattr(item, bound)}"


def set_names(environ: Mapping[str, str]) -> list[str]:
    """Return the names of the settings that an environment sets, without their values."""
    names = _known_names()
    return sorted(name for name in environ if name.upper() in names - _OTHERS)


def unknown_settings(environ: Mapping[str, str]) -> list[str]:
    """Say of each name with our prefix that is no setting what was probably meant."""
    names = _known_names()
    return [
        f"{name} is no setting{_guess(name, names)}"
        for name in sorted(environ)
        if name.upper().startswith(_PREFIX)
        and name.upper() not in names
        and not _is_of_kubernetes(name, environ)
    ]


def _is_of_kubernetes(name: str, environ: Mapping[str, str]) -> bool:
    """Tell whether a name is one of those that a service named by its beginning has here."""
    services = (
        host.removesuffix(_HOST_OF_KUBERNETES)
        for host in environ
        if host.endswith(_HOST_OF_KUBERNETES)
    )
    return any(
        name.startswith(service) and _OF_KUBERNETES.fullmatch(name, len(service))
        for service in services
    )


def _guess(name: str, names: frozenset[str]) -> str:
    similar = get_close_matches(name.upper(), sorted(names), n=1, cutoff=0.7)
    return f"; did you mean {similar[0]}?" if similar else ""


def _known_names() -> frozenset[str]:
    names = {f"{_PREFIX}{field.upper()}" for field in Settings.model_fields}
    return frozenset(names | {variable_of(field) for field in _WITHOUT_PREFIX} | _OTHERS)
