"""Load gateways of installed packages by the entry point group `payintent.gateways`.

The name of an entry point is the provider. Its object creates an adapter from a
`GatewayHttpClient`.
"""

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.port import PROVIDER_NAME, PROVIDER_NAME_FORM, Gateway, GatewayCapabilities

GROUP = "payintent.gateways"
_OPERATIONS = tuple(
    name for name, member in vars(Gateway).items() if callable(member) and name[0] != "_"
)


class GatewayPackageError(Exception):
    """An installed gateway package cannot be used."""


def load_gateway_packages(
    http: GatewayHttpClient, built_in: Iterable[str], entries: Iterable[EntryPoint] | None = None
) -> dict[str, Gateway]:
    """Load the adapters of all installed packages, by provider.

    Raises `GatewayPackageError` if two have the same name or any cannot be used: without its
    gateway, nothing would inquire about its payments.
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
    """Return the packages of installed gateways by provider, without importing them."""
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
    if missing := [name for name in _OPERATIONS if not callable(getattr(gateway, name, None))]:
        raise _unusable(entry, f"it lacks {', '.join(missing)}")
    return cast("Gateway", gateway)


def _unusable(entry: EntryPoint, why: str) -> GatewayPackageError:
    return GatewayPackageError(
        f"the gateway {entry.name} ({entry.value}, of {_owner(entry)}) cannot be used: {why}"
    )


def _owner(entry: EntryPoint) -> str:
    dist = entry.dist
    return "an unknown package" if dist is None else f"{dist.name} {dist.version}"


def _sort_key(entry: EntryPoint) -> tuple[str, str]:
    return entry.name, _owner(entry)
