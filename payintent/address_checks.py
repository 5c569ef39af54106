"""Checks of an installation's addresses, before anything is opened."""

import stat
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from payintent.config import Settings

_ENDPOINTS_MIN = 2
#: What the service's own routes begin with, under `api_base` and under `checkout_base`.
_PATHS = {"PAYINTENT_API_BASE": "/v1", "PAYINTENT_CHECKOUT_BASE": "/c"}
#: Names that no public server has (RFC 2606, 6761, 6762, and common ones of private networks).
_PRIVATE_ENDINGS = ("localhost", "test", "example", "invalid", "local", "internal", "lan")


class AddressUnusableError(Exception):
    """An address in the settings is not fit for this installation; the message omits it."""


def check_addresses(settings: Settings) -> None:
    """Refuse (`AddressUnusableError`) addresses that money must not depend on.

    A sandbox must not be reachable by the public: its operators need no token. Any other
    installation reads chains through two hosts at least, by https or on this machine.
    """
    if settings.sandbox:
        _check_sandbox(settings)
    elif not settings.chain_any_endpoints:
        for problem in endpoint_problems(settings):
            raise AddressUnusableError(f"{problem}, or set PAYINTENT_CHAIN_ANY_ENDPOINTS")


def endpoint_problems(settings: Settings) -> Iterable[str]:
    """Return what is wrong with the addresses of endpoints and signers, without the addresses."""
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
    """Return the base addresses that a production installation must not have; none in a sandbox."""
    for name, url in _bases(settings):
        if not settings.sandbox and not _is_safe(url):
            yield f"{name} must be https: checkouts and callbacks would be readable on the way"


def address_doubts(settings: Settings) -> Iterable[str]:
    """Return what can work, and is probably not meant; nothing in a sandbox."""
    if settings.sandbox:
        return
    for name, url in _bases(settings):
        if _is_loopback(_host(url)):
            yield f"{name} is on this machine: no gateway and no buyer reaches it from elsewhere"
        if not urlsplit(url).path.endswith(_PATHS[name]):
            yield f"{name} does not end with {_PATHS[name]}, where it is served"
    for name, path in _authorities(settings):
        if not _everybody_reads(path):
            yield f"{name} can be read by its owner alone: systemd starts another user"
    if settings.edge_secret.get_secret_value() and not settings.edge_trusted_proxies:
        yield "PAYINTENT_EDGE_SECRET is believed from PAYINTENT_EDGE_TRUSTED_PROXIES alone: unset"


def _bases(settings: Settings) -> list[tuple[str, str]]:
    """Return the base addresses that are set, with the names of their settings."""
    named = (
        ("PAYINTENT_API_BASE", settings.api_base),
        ("PAYINTENT_CHECKOUT_BASE", settings.checkout_base),
    )
    return [(name, url) for name, url in named if url]


def _check_sandbox(settings: Settings) -> None:
    for name, url in _bases(settings):
        if _is_public(_host(url)):
            raise AddressUnusableError(
                f"PAYINTENT_SANDBOX is set and {name} is public: a sandbox is no service"
            )


def _authorities(settings: Settings) -> Iterator[tuple[str, Path]]:
    """Give the files of authorities that are named, with the names of their settings."""
    if settings.ca_file:
        yield "PAYINTENT_CA_FILE", Path(settings.ca_file)
    try:
        query = parse_qs(urlsplit(settings.database_url).query)
    except ValueError:  # the database's own check says so
        return
    for path in query.get("sslrootcert", []):
        yield "sslrootcert of DATABASE_URL", Path(path)


def _everybody_reads(path: Path) -> bool:
    """Tell whether a process of any user can open a file; one that is missing is told elsewhere."""
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
