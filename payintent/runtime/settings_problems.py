"""Readable messages about invalid settings and unknown names in the environment."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from payintent.runtime.settings import Settings

_PREFIX = "PAYINTENT_"
#: Variables with our prefix that are not settings.
_OTHER_VARIABLES = frozenset({"PAYINTENT_OPERATOR_TOKEN"})
#: Kubernetes sets variables with the addresses of services, always including this suffix.
_KUBERNETES_HOST = "_SERVICE_HOST"
_KUBERNETES_SUFFIX = re.compile(
    r"_SERVICE_HOST|_SERVICE_PORT(?:_[A-Z0-9_]+)?"
    r"|_PORT(?:_[0-9]{1,5}_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?"
)
_WITHOUT_PREFIX = frozenset({"database_url", "database_direct_url", "database_read_url"})
_QUOTED_CHARS = 40
_BOUNDS = (("ge", "at least"), ("gt", "above"), ("le", "at most"))
_NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number", Decimal: "a number"}


def variable_of(field: str) -> str:
    return field.upper() if field in _WITHOUT_PREFIX else f"{_PREFIX}{field.upper()}"


def problem_lines(error: ValidationError) -> list[str]:
    """Describe each problem and the allowed values; string values are not quoted."""
    missing: list[str] = []
    lines: list[str] = []
    for item in error.errors(include_url=False):
        field = _field_of(item["loc"])
        if item["type"] == "missing" or item["type"] == "string_too_short":
            missing.append(variable_of(field))
        else:
            lines.append(_problem(field, item["msg"].removeprefix("Value error, "), item["input"]))
    return [f"{name} is missing" for name in missing] + lines


def _field_of(location: tuple[int | str, ...]) -> str:
    """Return the setting of an error; empty if it concerns several settings."""
    name = str(location[0]).lower() if location else ""
    return name.removeprefix(_PREFIX.lower())


def _problem(field: str, message: str, value: object) -> str:
    if not field:
        return message
    name = variable_of(field)
    values = _allowed_values(Settings.model_fields[field])
    if not values:
        return f"{name} {message}"
    return f"{name} is {str(value)[:_QUOTED_CHARS]!r} and must be {values}"


def _allowed_values(field: FieldInfo) -> str:
    """Describe the allowed values; empty for strings, whose validators describe them."""
    if get_origin(field.annotation) is Literal:
        return f"one of {', '.join(get_args(field.annotation))}"
    if field.annotation is bool:
        return "true or false"
    noun = _NUMBERS.get(field.annotation)
    return f"{noun}, {' and '.join(_bounds(field.metadata))}" if noun else ""


def _bounds(metadata: Iterable[Any]) -> Iterator[str]:
    for bound, text in _BOUNDS:
        for item in metadata:
            if hasattr(item, bound):
                yield f"{text} {getattr(item, bound)}"


def set_names(environ: Mapping[str, str]) -> list[str]:
    """List the settings that an environment sets, without their values."""
    names = _variable_names()
    return sorted(name for name in environ if name.upper() in names - _OTHER_VARIABLES)


def unknown_settings(environ: Mapping[str, str]) -> list[str]:
    """Report each unknown name with our prefix, with a suggestion."""
    names = _variable_names()
    return [
        f"{name} is not a setting{_suggestion(name, names)}"
        for name in sorted(environ)
        if name.upper().startswith(_PREFIX)
        and name.upper() not in names
        and not _is_set_by_kubernetes(name, environ)
    ]


def _is_set_by_kubernetes(name: str, environ: Mapping[str, str]) -> bool:
    """Return True if a name consists of the prefix of a service and a suffix of Kubernetes."""
    services = (
        host.removesuffix(_KUBERNETES_HOST) for host in environ if host.endswith(_KUBERNETES_HOST)
    )
    return any(
        name.startswith(service) and _KUBERNETES_SUFFIX.fullmatch(name, len(service))
        for service in services
    )


def _suggestion(name: str, names: frozenset[str]) -> str:
    similar = get_close_matches(name.upper(), sorted(names), n=1, cutoff=0.7)
    return f"; did you mean {similar[0]}?" if similar else ""


def _variable_names() -> frozenset[str]:
    names = {f"{_PREFIX}{field.upper()}" for field in Settings.model_fields}
    return frozenset(names | {variable_of(field) for field in _WITHOUT_PREFIX} | _OTHER_VARIABLES)


#: The first release of each series with the fix for CVE-2024-7592.
_FIXED = {(3, 11): 10, (3, 12): 6}


def interpreter_doubts(version: tuple[int, int, int] = sys.version_info[:3]) -> list[str]:
    series, release = (version[0], version[1]), version[2]
    if release >= _FIXED.get(series, 0):
        return []
    number = ".".join(map(str, version))
    fault = "parses hostile cookies in quadratic time (CVE-2024-7592)"
    fixed = f"{series[0]}.{series[1]}.{_FIXED[series]}"
    return [f"Python {number} {fault}: upgrade to {fixed} or later"]
