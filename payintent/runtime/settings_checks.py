"""Checks of the environment: invalid and unknown settings, unsuitable addresses, old Pythons."""

import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from urllib.parse import parse_qs, urlsplit

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


_ENDPOINTS_MIN = 2
_PATHS = {"PAYINTENT_API_BASE": "/v1", "PAYINTENT_CHECKOUT_BASE": "/c"}  # of our routes
#: Names of private servers (RFC 2606, 6761, 6762, and common names in private networks).
_PRIVATE_ENDINGS = ("localhost", "test", "example", "invalid", "local", "internal", "lan")


class AddressUnusableError(Exception):
    """A configured address is not suitable for this installation; the message omits it."""


def check_addresses(settings: Settings) -> None:
    """Raise `AddressUnusableError` if money must not depend on the configured addresses.

    A sandbox must not be public, because its operators need no token. Any other installation must
    read chains through at least two hosts, by https or on this machine.
    """
    if settings.sandbox:
        for name, url in _bases(settings):
            if _is_public(_host(url)):
                raise AddressUnusableError(
                    f"{name} is public, but PAYINTENT_SANDBOX is set: a sandbox must be private"
                )
    elif not settings.chain_any_endpoints:
        for problem in endpoint_problems(settings):
            raise AddressUnusableError(f"{problem}, or set PAYINTENT_CHAIN_ANY_ENDPOINTS")


def endpoint_problems(settings: Settings) -> Iterable[str]:
    """List problems of the chain endpoints and signers, without their URLs."""
    for chain, urls in settings.endpoints.items():
        name = f"PAYINTENT_RPC_{chain.upper()}"
        if not all(_is_safe(url) for url in urls):
            yield f"{name} must be https or on this machine"
        if len({_host(url) for url in urls}) < _ENDPOINTS_MIN:
            yield f"{name} needs two endpoints at different hosts"
    for chain, url in settings.signers.items():
        if not _is_safe(url):
            yield f"PAYINTENT_SIGNER_{chain.upper()} must be https or on this machine"


def insecure_bases(settings: Settings) -> Iterable[str]:
    """List base URLs without https; none in a sandbox."""
    for name, url in _bases(settings):
        if not settings.sandbox and not _is_safe(url):
            yield f"{name} must be https: checkouts and callbacks would not be encrypted"


def address_doubts(settings: Settings) -> Iterable[str]:
    """List addresses that work but are probably unintended; none in a sandbox."""
    if settings.sandbox:
        return
    for name, url in _bases(settings):
        if _is_loopback(_host(url)):
            yield f"{name} is on this machine, so gateways and buyers cannot reach it"
        if not urlsplit(url).path.endswith(_PATHS[name]):
            yield f"{name} does not end with {_PATHS[name]}, which is the path of its routes"
    for name, path in _authorities(settings):
        if not _is_world_readable(path):
            yield f"{name} is only readable by its owner, but systemd starts another user"
    if settings.edge_secret.get_secret_value() and not settings.edge_trusted_proxies:
        yield "PAYINTENT_EDGE_SECRET has no effect without PAYINTENT_EDGE_TRUSTED_PROXIES"


def _bases(settings: Settings) -> list[tuple[str, str]]:
    bases = (
        ("PAYINTENT_API_BASE", settings.api_base),
        ("PAYINTENT_CHECKOUT_BASE", settings.checkout_base),
    )
    return [(name, url) for name, url in bases if url]


def _authorities(settings: Settings) -> Iterator[tuple[str, Path]]:
    if settings.ca_file:
        yield "PAYINTENT_CA_FILE", Path(settings.ca_file)
    try:
        query = parse_qs(urlsplit(settings.database_url).query)
    except ValueError:  # reported by the database check
        return
    for path in query.get("sslrootcert", []):
        yield "sslrootcert of DATABASE_URL", Path(path)


def _is_world_readable(path: Path) -> bool:
    """Return True if any user can read a file, or if it is missing."""
    if not path.is_file():
        return True
    folders = path.resolve().parents
    return bool(path.stat().st_mode & stat.S_IROTH) and all(
        folder.stat().st_mode & stat.S_IXOTH for folder in folders
    )


def _is_safe(url: str) -> bool:
    try:
        return urlsplit(url).scheme == "https" or _is_loopback(_host(url))
    except ValueError:
        return False


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".").lower()
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _is_public(host: str) -> bool:
    try:
        return ip_address(host).is_global
    except ValueError:
        return "." in host and not host.endswith(tuple(f".{ending}" for ending in _PRIVATE_ENDINGS))
