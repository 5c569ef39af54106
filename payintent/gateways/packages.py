"""Load gateways from installed packages, through the entry point group `payintent.gateways`.

The name of an entry point is the provider. Its object must be a factory that creates an adapter
from a `GatewayHttpClient`.
"""

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.port import Gateway, GatewayCapabilities

GROUP = "payintent.gateways"
#: The provider's name is part of URLs and responses. The database checks the same pattern.
PROVIDER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)
PROVIDER_NAME_FORM = "1 to 32 lowercase letters, digits, _ and -"
_METHODS = tuple(
    name for name, member in vars(Gateway).items() if callable(member) and name[0] != "_"
)


class GatewayPackageError(Exception):
    """An installed gateway package cannot be used."""


def load_gateway_packages(
    http: GatewayHttpClient, built_in: Iterable[str], entries: Iterable[EntryPoint] | None = None
) -> dict[str, Gateway]:
    """Load the adapters of all installed packages, by provider.

    Raises `GatewayPackageError` if a package cannot be used or two packages provide the same
    gateway. Skipping the gateway would leave its pending payments unsettled.
    """
    owners = dict.fromkeys(built_in, "payintent itself")
    gateways: dict[str, Gateway] = {}
    for entry in sorted(entry_points(group=GROUP) if entries is None else entries, key=_sort_key):
        if entry.name in owners:
            raise GatewayPackageError(
                f"two packages provide the gateway {entry.name}: {owners[entry.name]} and "
                f"{_owner(entry)}; uninstall one of them"
            )
        owners[entry.name] = _owner(entry)
        gateways[entry.name] = _load(entry, http)
    return gateways


def list_gateway_packages() -> Mapping[str, str]:
    """Return the name and version of each gateway's package, by provider, without importing it."""
    return {entry.name: _owner(entry) for entry in sorted(entry_points(group=GROUP), key=_sort_key)}


def _load(entry: EntryPoint, http: GatewayHttpClient) -> Gateway:
    try:
        gateway = entry.load()(http)
    except Exception as error:
        raise _unusable(entry, f"{type(error).__name__}: {error}") from error
    if getattr(gateway, "provider", None) != entry.name:
        raise _unusable(entry, f"its provider is {getattr(gateway, 'provider', None)!r}")
    if not PROVIDER_NAME.fullmatch(entry.name):
        raise _unusable(entry, f"its name must be {PROVIDER_NAME_FORM}")
    if not isinstance(getattr(gateway, "capabilities", None), GatewayCapabilities):
        raise _unusable(entry, "it has no GatewayCapabilities")
    if missing := [name for name in _METHODS if not callable(getattr(gateway, name, None))]:
        raise _unusable(entry, f"it lacks {', '.join(missing)}")
    return cast("Gateway", gateway)


def _unusable(entry: EntryPoint, reason: str) -> GatewayPackageError:
    return GatewayPackageError(
        f"the gateway {entry.name} ({entry.value} in {_owner(entry)}) cannot be used: {reason}"
    )


def _owner(entry: EntryPoint) -> str:
    dist = entry.dist
    return "an unknown package" if dist is None else f"{dist.name} {dist.version}"


def _sort_key(entry: EntryPoint) -> tuple[str, str]:
    return entry.name, _owner(entry)
