"""Egress rules that protect outgoing requests against server-side request forgery.

Each connection is made to exactly the address that was checked. The name is not resolved again.
"""

import asyncio
import errno
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from payintent.core.addresses import parse_ip_network
from payintent.runtime.setting_types import split_list
from payintent.runtime.settings import Settings
from payintent.runtime.waiting import release_slot

if TYPE_CHECKING:
    from aiohttp.abc import ResolveResult


URL_CHARS_MAX = 2_048
HOST_CHARS_MAX = 253
PORTS = frozenset({80, 443, 8080, 8443})
DEFAULT_PORTS = {"http": 80, "https": 443}
DNS_TIMEOUT_S = 2.0
#: `getaddrinfo` cannot be cancelled, so a lookup that hangs blocks its thread. There is at most one
#: lookup per host.
DNS_THREADS_MAX = 512

Address = IPv4Address | IPv6Address
AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]  # as returned by getaddrinfo
Lookup = Callable[[str], Awaitable[Sequence[str]]]  # returns the addresses of a host name


class EgressRefusedError(PermissionError):
    """The URL or address is forbidden. `reason` explains why.

    This is an OSError, so that the HTTP client treats it as a connection failure.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EACCES, reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackTarget:
    """A checked and normalized URL; `address` is set if its host is an IP literal."""

    url: str
    host: str
    port: int
    address: Address | None = None


def check_callback_url(url: str, rules: "EgressRules | None" = None) -> CallbackTarget:
    """Parse and check a URL without resolving its host. Raises `EgressRefusedError`."""
    parts, port = _split_url(url)
    if parts.scheme not in DEFAULT_PORTS:
        raise EgressRefusedError("the scheme must be http or https")
    if "@" in parts.netloc:
        raise EgressRefusedError("the URL must not contain a user name or password")
    if "#" in url:
        raise EgressRefusedError("the URL must not have a fragment")
    rules = rules or EgressRules()
    if port < 1 or not (rules.sandbox or port in rules.ports):
        ports = ", ".join(map(str, sorted(rules.ports)))
        raise EgressRefusedError(f"the port must be one of {ports}")
    host, address = _check_host(parts, rules)
    authority = host if port == DEFAULT_PORTS[parts.scheme] else f"{host}:{port}"
    # Rebuild the URL from its checked parts, so that no parser can find a different host in it.
    query = f"?{parts.query}" if "?" in url else ""
    url = f"{parts.scheme}://{authority}{parts.path or '/'}{query}"
    return CallbackTarget(url=url, host=host, port=port, address=address)


def find_address_refusal(address: str | Address, rules: "EgressRules | None" = None) -> str | None:
    """Return why an address is forbidden, or None if it is allowed.

    Private networks are allowed if the rules include them. Metadata addresses are never allowed.
    """
    ip = ip_address(address)
    if reason := _find_group_name(ip, _FORBIDDEN_NETWORKS):
        return reason
    if rules is not None and rules.allows_private(ip):
        return None
    if reason := _find_group_name(ip, _NON_PUBLIC_NETWORKS):
        return reason
    # Addresses that are not on any list must be in public address space.
    is_public = ip in _PUBLIC_IPV6 if ip.version == 6 else ip.is_global and not ip.is_reserved  # noqa: PLR2004
    return None if is_public else "not a public address"


async def check_callback_registration(
    url: str, rules: "EgressRules | None" = None, *, lookup: Lookup | None = None
) -> CallbackTarget:
    """Check a URL and its host's current addresses. Raises `EgressRefusedError`."""
    target = check_callback_url(url, rules)
    if target.address is None:
        resolver = CheckedResolver(rules=rules, lookup=lookup)
        try:
            await resolver.resolve(target.host, target.port)
        except EgressRefusedError:
            raise
        except OSError as error:
            raise EgressRefusedError(f"the host name {target.host} cannot be resolved") from error
        finally:
            await resolver.close()
    return target


class CheckedResolver:
    """Resolves host names for the HTTP client, which connects only to the returned addresses.

    The client does not resolve IP literals. They are checked by `check_callback_url` and
    `open_checked_socket`.
    """

    def __init__(
        self,
        *,
        rules: "EgressRules | None" = None,
        timeout_s: float = DNS_TIMEOUT_S,
        lookup: Lookup | None = None,
    ) -> None:
        self._rules = rules
        self._timeout_s = timeout_s
        self._lookup = lookup or self._query_system
        self._threads: ThreadPoolExecutor | None = None
        self._lookups: dict[str, asyncio.Task[Sequence[str]]] = {}

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002 - every address is checked
    ) -> "list[ResolveResult]":
        """Return a host's addresses. Raises `EgressRefusedError` unless all are allowed."""
        release_slot()
        try:
            async with asyncio.timeout(self._timeout_s):
                addresses = await asyncio.shield(self._share_lookup(host))
        except TimeoutError as error:
            raise OSError(errno.ETIMEDOUT, "the name was not resolved in time") from error
        if not addresses:
            raise OSError(errno.ENOENT, "the host name has no address")
        for address in addresses:
            if reason := find_address_refusal(address, self._rules):
                raise EgressRefusedError(f"{host} has an address that is not allowed: {reason}")
        return [_make_resolve_result(host, address, port) for address in addresses]

    async def close(self) -> None:
        for task in self._lookups.values():
            task.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    def _share_lookup(self, host: str) -> asyncio.Task[Sequence[str]]:
        """Join or start the lookup of a host, so that a host never occupies two threads."""
        task = self._lookups.get(host)
        if task is None:
            task = asyncio.ensure_future(self._lookup(host))
            self._lookups[host] = task
            task.add_done_callback(lambda task: self._finish_lookup(host, task))
        return task

    def _finish_lookup(self, host: str, task: asyncio.Task[Sequence[str]]) -> None:
        self._lookups.pop(host, None)
        if not task.cancelled():
            task.exception()  # mark the exception as retrieved, in case all callers have timed out

    async def _query_system(self, host: str) -> Sequence[str]:
        if self._threads is None:
            # A separate pool, so that slow lookups cannot block the loop's default pool.
            self._threads = ThreadPoolExecutor(DNS_THREADS_MAX, thread_name_prefix="dns")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _query_system_addresses, host)


def open_checked_socket(
    address_info: AddressInfo, rules: "EgressRules | None" = None
) -> socket.socket:
    """Open a connection's socket. Raises `EgressRefusedError` if its address is forbidden.

    Every socket for a merchant's URL is opened here.
    """
    family, socket_type, protocol, _, address = address_info
    if reason := find_address_refusal(str(address[0]), rules):
        raise EgressRefusedError(f"the address is not allowed: {reason}")
    return socket.socket(family, socket_type, protocol)


_Network = IPv4Network | IPv6Network
_NetworkGroups = tuple[tuple[str, tuple[_Network, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressRules:
    """Networks and ports that are allowed in addition to public addresses."""

    sandbox: bool = False  # allows any port, loopback and all private networks
    networks: tuple[_Network, ...] = ()
    ports: frozenset[int] = PORTS

    def allows_private(self, ip: Address) -> bool:
        if self.sandbox and any(ip in network for network in _SANDBOX_NETWORKS):
            return True
        is_allowable = any(ip in network for network in _ALLOWABLE_NETWORKS)
        return is_allowable and any(ip in network for network in self.networks)


def make_egress_rules(settings: Settings, *, is_public_only: bool = False) -> EgressRules:
    """Build the rules from the settings. `is_public_only` omits their private networks."""
    networks = "" if is_public_only else settings.webhook_networks
    return EgressRules(
        sandbox=settings.sandbox,
        networks=tuple(map(parse_ip_network, split_list(networks))),
        ports=PORTS.union(map(int, split_list(settings.webhook_ports))),
    )


def _parse_networks(*texts: str) -> tuple[_Network, ...]:
    return tuple(ip_network(text) for text in texts)


# `is_global` accepts multicast, NAT64, 6to4 and some metadata addresses, and its result varies
# between Python patch releases. These ranges come from the IANA special-purpose registries.
_FORBIDDEN_NETWORKS: _NetworkGroups = (
    (
        "cloud metadata",
        _parse_networks(
            "169.254.169.254",
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "fd00:ec2::/32",
            "fd00:42::42",
            "fd20:ce::254",
        ),
    ),
    ("link-local", _parse_networks("169.254.0.0/16", "fe80::/10")),
    ("unspecified", _parse_networks("0.0.0.0/8", "::/128")),
    ("multicast", _parse_networks("224.0.0.0/4", "ff00::/8")),
    ("broadcast", _parse_networks("255.255.255.255")),
    ("IPv4 inside IPv6", _parse_networks("::ffff:0:0/96")),
)
_SANDBOX_NETWORKS = _parse_networks(
    "127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "::1"
)
#: Networks that settings can allow. IPv4 addresses embedded in IPv6, such as NAT64, are excluded.
_ALLOWABLE_NETWORKS = (*_SANDBOX_NETWORKS, *_parse_networks("100.64.0.0/10"))
_NON_PUBLIC_NETWORKS: _NetworkGroups = (
    ("loopback", _parse_networks("127.0.0.0/8", "::1")),
    ("private", _parse_networks("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")),
    ("carrier-grade NAT", _parse_networks("100.64.0.0/10")),
    ("reserved", _parse_networks("192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4")),
    (
        "for documentation",
        _parse_networks("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
        + _parse_networks("2001:db8::/32", "3fff::/20"),
    ),
    ("6to4", _parse_networks("192.88.99.0/24", "2002::/16")),
    ("NAT64", _parse_networks("64:ff9b::/96", "64:ff9b:1::/48")),
    ("reserved", _parse_networks("2001::/23", "2620:4f:8000::/48")),  # Teredo, ORCHID, AS112
)
_PUBLIC_IPV6 = ip_network("2000::/3")

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


def _find_group_name(ip: Address, groups: _NetworkGroups) -> str | None:
    for name, networks in groups:
        if any(ip in network for network in networks):
            return name
    return None


def _split_url(url: str) -> tuple[SplitResult, int]:
    if len(url) > URL_CHARS_MAX:
        raise EgressRefusedError(f"the URL must not be longer than {URL_CHARS_MAX} characters")
    # urlsplit silently removes tabs and newlines, and browsers treat a backslash as a slash.
    if not all("!" <= char <= "~" and char != "\\" for char in url):
        raise EgressRefusedError("the URL must be ASCII; use the xn-- form of names")
    try:
        parts = urlsplit(url)
        return parts, DEFAULT_PORTS.get(parts.scheme, 0) if parts.port is None else parts.port
    except ValueError as error:
        raise EgressRefusedError("the URL is not valid") from error


def _check_host(parts: SplitResult, rules: "EgressRules") -> tuple[str, Address | None]:
    host = parts.hostname or ""
    if not 1 <= len(host) <= HOST_CHARS_MAX:
        raise EgressRefusedError(f"the host must have 1 to {HOST_CHARS_MAX} characters")
    if "[" in parts.netloc and ":" not in host:
        raise EgressRefusedError("only IPv6 addresses may be written in brackets")
    address = _parse_literal(host)
    if address is None:
        if not all(_LABEL.fullmatch(label) for label in host.removesuffix(".").split(".")):
            raise EgressRefusedError("the host is not a valid name")
        return host, None
    if reason := find_address_refusal(address, rules):
        raise EgressRefusedError(f"the address is not allowed: {reason}")
    return f"[{address}]" if address.version == 6 else str(address), address  # noqa: PLR2004


def _parse_literal(host: str) -> Address | None:
    """Parse an IP literal. Returns None if the host is a name.

    The C library also accepts addresses such as `0x7f.1` and `127.1`. A host whose last label is a
    number must therefore be a dotted quad, as in the WHATWG URL standard.
    """
    is_number = _NUMBER.fullmatch(host.removesuffix(".").rpartition(".")[2]) is not None
    if ":" not in host and not is_number:
        return None
    if "%" not in host:
        try:
            return ip_address(host)
        except ValueError:
            pass
    raise EgressRefusedError("the IP address must be written in its standard form")


def _query_system_addresses(host: str) -> list[str]:
    # Pass bytes, because the codec for str would convert non-ASCII digits to ASCII digits.
    address_infos = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM)
    return [str(address_info[4][0]) for address_info in address_infos]


def _make_resolve_result(host: str, address: str, port: int) -> "ResolveResult":
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return {
        "hostname": host,
        "host": address,
        "port": port,
        "family": family,
        "proto": 0,
        "flags": flags,
    }
