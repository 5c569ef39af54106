"""Checks of the configured addresses, before anything is opened."""

import stat
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from payintent.runtime.settings import Settings

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
