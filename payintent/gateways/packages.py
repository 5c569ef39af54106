"""Load gateways from installed packages, which register entry points in `payintent.gateways`.

An entry point is named after the provider, and must refer to a factory that creates an adapter from
a `GatewayHttpClient`.
"""

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.port import Gateway, GatewayCapabilities

ENTRY_POINT_GROUP = "payintent.gateways"
#: The provider's name is part of URLs and responses. The database checks the same pattern.
PROVIDER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)
PROVIDER_NAME_RULE = "1 to 32 lowercase letters, digits, _ and -"
_METHODS = tuple(
    name for name, member in vars(Gateway).items() if callable(member) and name[0] != "_"
)


class GatewayPackageError(Exception):
    """An installed gateway package cannot be used."""


def load_gateway_packages(
    http: GatewayHttpClient, built_in: Iterable[str], entries: Iterable[EntryPoint] | None = None
) -> dict[str, Gateway]:
    """Load the adapters of all installed packages, by provider.

    Raises `GatewayPackageError` if a package cannot be used, or if two packages provide the same
    gateway. Skipping the gateway would leave its pending payments unsettled.
    """
    package_names = dict.fromkeys(built_in, "payintent itself")
    gateways: dict[str, Gateway] = {}
    installed_entries = entry_points(group=ENTRY_POINT_GROUP) if entries is None else entries
    for entry in sorted(installed_entries, key=_sort_key):
        if entry.name in package_names:
            raise GatewayPackageError(
                f"two packages provide the gateway {entry.name}: {package_names[entry.name]} and "
                f"{_package_name(entry)}; uninstall one of them"
            )
        package_names[entry.name] = _package_name(entry)
        gateways[entry.name] = _load(entry, http)
    return gateways


def list_gateway_packages() -> Mapping[str, str]:
    """Return the package name and version of each gateway, without importing the packages."""
    return {
        entry.name: _package_name(entry)
        for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=_sort_key)
    }


def _load(entry: EntryPoint, http: GatewayHttpClient) -> Gateway:
    try:
        gateway = entry.load()(http)
    except Exception as error:
        raise _package_error(entry, f"{type(error).__name__}: {error}") from error
    if getattr(gateway, "provider", None) != entry.name:
        raise _package_error(entry, f"its provider is {getattr(gateway, 'provider', None)!r}")
    if not PROVIDER_NAME.fullmatch(entry.name):
        raise _package_error(entry, f"its name must be {PROVIDER_NAME_RULE}")
    if not isinstance(getattr(gateway, "capabilities", None), GatewayCapabilities):
        raise _package_error(entry, "its capabilities are not a GatewayCapabilities object")
    if missing_methods := [name for name in _METHODS if not callable(getattr(gateway, name, None))]:
        raise _package_error(entry, f"it lacks {', '.join(missing_methods)}")
    return cast("Gateway", gateway)


def _package_error(entry: EntryPoint, reason: str) -> GatewayPackageError:
    return GatewayPackageError(
        f"the gateway {entry.name} ({entry.value} in {_package_name(entry)}) cannot be used: "
        f"{reason}"
    )


def _package_name(entry: EntryPoint) -> str:
    distribution = entry.dist
    if distribution is None:
        return "an unknown package"
    return f"{distribution.name} {distribution.version}"


def _sort_key(entry: EntryPoint) -> tuple[str, str]:
    return entry.name, _package_name(entry)
