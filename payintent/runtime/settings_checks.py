"""Find invalid or unknown settings, unsuitable addresses and outdated Python versions."""

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
_NON_SETTINGS = frozenset({"PAYINTENT_OPERATOR_TOKEN"})
#: For each service, Kubernetes sets a variable with this suffix and variables for its addresses.
_KUBERNETES_HOST = "_SERVICE_HOST"
_KUBERNETES_SUFFIX = re.compile(
    r"_SERVICE_HOST|_SERVICE_PORT(?:_[A-Z0-9_]+)?"
    r"|_PORT(?:_[0-9]{1,5}_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?"
)
_WITHOUT_PREFIX = frozenset({"database_url", "database_direct_url", "database_read_url"})
_QUOTED_CHARS_MAX = 40
_BOUNDS = (("ge", "of at least"), ("gt", "above"), ("le", "at most"))
_NUMBER_NOUNS: dict[Any, str] = {int: "a whole number", float: "a number", Decimal: "a number"}


def make_variable_name(field: str) -> str:
    return field.upper() if field in _WITHOUT_PREFIX else f"{_PREFIX}{field.upper()}"


def describe_problems(error: ValidationError) -> list[str]:
    """Describe each problem and the allowed values. String values are not quoted."""
    missing_names: list[str] = []
    lines: list[str] = []
    for item in error.errors(include_url=False):
        field = _get_field_name(item["loc"])
        if item["type"] == "missing" or item["type"] == "string_too_short":
            missing_names.append(make_variable_name(field))
        else:
            lines.append(
                _describe_problem(field, item["msg"].removeprefix("Value error, "), item["input"])
            )
    return [f"{name} is missing" for name in missing_names] + lines


def _get_field_name(location: tuple[int | str, ...]) -> str:
    """Return the field of an error, or "" if the error concerns several settings."""
    name = str(location[0]).lower() if location else ""
    return name.removeprefix(_PREFIX.lower())


def _describe_problem(field: str, message: str, value: object) -> str:
    if not field:
        return message
    name = make_variable_name(field)
    values = _describe_allowed_values(Settings.model_fields[field])
    if not values:
        return f"{name} {message}"
    return f"{name} is {str(value)[:_QUOTED_CHARS_MAX]!r} but must be {values}"


def _describe_allowed_values(field: FieldInfo) -> str:
    """Describe the allowed values. Returns "" for strings, whose validators describe them."""
    if get_origin(field.annotation) is Literal:
        return f"one of {', '.join(get_args(field.annotation))}"
    if field.annotation is bool:
        return "true or false"
    noun = _NUMBER_NOUNS.get(field.annotation)
    return f"{noun} {' and '.join(_describe_bounds(field.metadata))}" if noun else ""


def _describe_bounds(metadata: Iterable[Any]) -> Iterator[str]:
    for bound, text in _BOUNDS:
        for item in metadata:
            if hasattr(item, bound):
                yield f"{text} {getattr(item, bound)}"


def list_configured_names(environ: Mapping[str, str]) -> list[str]:
    """Return the names of the settings in an environment, without their values."""
    names = _list_variable_names()
    return sorted(name for name in environ if name.upper() in names - _NON_SETTINGS)


def find_unknown_settings(environ: Mapping[str, str]) -> list[str]:
    """Report names with our prefix that have no effect.

    These are unknown names, with a similar name, and URLs that a name without the prefix overrides.
    """
    names = _list_variable_names()
    unknown_names = [
        f"{name} is not a setting{_suggest_name(name, names)}"
        for name in sorted(environ)
        if name.upper().startswith(_PREFIX)
        and name.upper() not in names
        and not _is_set_by_kubernetes(name, environ)
    ]
    return unknown_names + [
        f"{_PREFIX}{name} has no effect, because {name} has a different value; remove one of them"
        for name in sorted(map(make_variable_name, _WITHOUT_PREFIX))
        if len({environ[key] for key in (name, _PREFIX + name) if key in environ}) > 1
    ]


def _is_set_by_kubernetes(name: str, environ: Mapping[str, str]) -> bool:
    """Return whether a name consists of a service's prefix and one of Kubernetes' suffixes."""
    prefixes = (
        host.removesuffix(_KUBERNETES_HOST) for host in environ if host.endswith(_KUBERNETES_HOST)
    )
    return any(
        name.startswith(prefix) and _KUBERNETES_SUFFIX.fullmatch(name, len(prefix))
        for prefix in prefixes
    )


def _suggest_name(name: str, names: frozenset[str]) -> str:
    similar = get_close_matches(name.upper(), sorted(names), n=1, cutoff=0.7)
    return f"; did you mean {similar[0]}?" if similar else ""


def _list_variable_names() -> frozenset[str]:
    names = {f"{_PREFIX}{field.upper()}" for field in Settings.model_fields}
    return frozenset(
        names | {make_variable_name(field) for field in _WITHOUT_PREFIX} | _NON_SETTINGS
    )


#: The first release in each series that contains the fix for CVE-2024-7592.
_FIXED_RELEASES = {(3, 11): 10, (3, 12): 6}


def find_interpreter_warnings(version: tuple[int, int, int] = sys.version_info[:3]) -> list[str]:
    series, release = (version[0], version[1]), version[2]
    if release >= _FIXED_RELEASES.get(series, 0):
        return []
    number = ".".join(map(str, version))
    problem = "parses hostile cookies in quadratic time (CVE-2024-7592)"
    fixed_release = f"{series[0]}.{series[1]}.{_FIXED_RELEASES[series]}"
    return [f"Python {number} {problem}: upgrade to {fixed_release} or later"]


_ENDPOINTS_MIN = 2
#: The paths of our routes.
_BASE_PATHS = {"PAYINTENT_API_BASE": "/v1", "PAYINTENT_CHECKOUT_BASE": "/c"}
#: Names of private servers (RFC 2606, 6761, 6762, and common names in private networks).
_PRIVATE_ENDINGS = ("localhost", "test", "example", "invalid", "local", "internal", "lan")


class UnusableAddressError(Exception):
    """A configured address is unsuitable. The message does not contain the address."""


def check_addresses(settings: Settings) -> None:
    """Raise `UnusableAddressError` if the configured addresses are not safe enough for payments.

    A sandbox must not be public, because its operators do not need a token. Any other installation
    must read chains through at least two hosts, over https or on this machine.
    """
    if settings.sandbox:
        for name, url in _list_base_urls(settings):
            if _is_public(_get_host(url)):
                raise UnusableAddressError(
                    f"{name} is public, but PAYINTENT_SANDBOX is set: a sandbox must be private"
                )
    elif not settings.chain_any_endpoints:
        for problem in find_endpoint_problems(settings):
            raise UnusableAddressError(f"{problem}, or set PAYINTENT_CHAIN_ANY_ENDPOINTS")


def find_endpoint_problems(settings: Settings) -> Iterable[str]:
    """Yield problems with chain endpoints and signers, without their URLs."""
    for chain, urls in settings.endpoints.items():
        name = f"PAYINTENT_RPC_{chain.upper()}"
        if not all(_is_protected(url) for url in urls):
            yield f"{name} must use https or refer to this machine"
        if len({_get_host(url) for url in urls}) < _ENDPOINTS_MIN:
            yield f"{name} needs two endpoints on different hosts"
    for chain, url in settings.signers.items():
        if not _is_protected(url):
            yield f"PAYINTENT_SIGNER_{chain.upper()} must use https or refer to this machine"


def find_insecure_base_urls(settings: Settings) -> Iterable[str]:
    """Yield warnings about base URLs without https, except in a sandbox."""
    for name, url in _list_base_urls(settings):
        if not settings.sandbox and not _is_protected(url):
            yield f"{name} must use https, so that checkouts and callbacks are encrypted"


def find_address_warnings(settings: Settings) -> Iterable[str]:
    """Yield warnings about addresses that are probably mistakes, except in a sandbox."""
    if settings.sandbox:
        return
    for name, url in _list_base_urls(settings):
        if _is_loopback(_get_host(url)):
            yield f"{name} is on this machine, so gateways and buyers cannot reach it"
        if not urlsplit(url).path.endswith(_BASE_PATHS[name]):
            yield f"{name} must end with {_BASE_PATHS[name]}, the path of its routes"
    for name, path in _list_authority_files(settings):
        if not _is_world_readable(path):
            yield f"{name} is not readable by all users, so the service may be unable to read it"
    if settings.edge_secret.get_secret_value() and not settings.edge_trusted_proxies:
        yield "PAYINTENT_EDGE_SECRET has no effect without PAYINTENT_EDGE_TRUSTED_PROXIES"


def _list_base_urls(settings: Settings) -> list[tuple[str, str]]:
    bases = (
        ("PAYINTENT_API_BASE", settings.api_base),
        ("PAYINTENT_CHECKOUT_BASE", settings.checkout_base),
    )
    return [(name, url) for name, url in bases if url]


def _list_authority_files(settings: Settings) -> Iterator[tuple[str, Path]]:
    if settings.ca_file:
        yield "PAYINTENT_CA_FILE", Path(settings.ca_file)
    try:
        query = parse_qs(urlsplit(settings.database_url).query)
    except ValueError:  # reported by the database check
        return
    for path in query.get("sslrootcert", []):
        yield "sslrootcert of DATABASE_URL", Path(path)


def _is_world_readable(path: Path) -> bool:
    """Return whether all users can read a file. Returns True if the file is missing."""
    if not path.is_file():
        return True
    folders = path.resolve().parents
    return bool(path.stat().st_mode & stat.S_IROTH) and all(
        folder.stat().st_mode & stat.S_IXOTH for folder in folders
    )


def _is_protected(url: str) -> bool:
    try:
        return urlsplit(url).scheme == "https" or _is_loopback(_get_host(url))
    except ValueError:
        return False


def _get_host(url: str) -> str:
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
