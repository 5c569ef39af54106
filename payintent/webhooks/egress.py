"""Which callback URLs and addresses may be called; the address checked is the one connected to."""

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

from payintent.config import Settings
from payintent.domain.ip_address import parse_ip_network
from payintent.setting_types import split_list
from payintent.slot import release_slot

if TYPE_CHECKING:
    from aiohttp.abc import ResolveResult

URL_CHARS_MAX = 2_048
HOST_CHARS_MAX = 253
PORTS = frozenset({80, 443, 8080, 8443})
DEFAULT_PORTS = {"http": 80, "https": 443}
DNS_TIMEOUT_S = 2.0
DNS_THREADS_MAX = 128  # getaddrinfo cannot be cancelled: a slow name keeps its thread for a while

Address = IPv4Address | IPv6Address
AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]  # as from getaddrinfo
Lookup = Callable[[str], Awaitable[Sequence[str]]]  # a name's addresses, as texts


class EgressRefusedError(PermissionError):
    """A callback URL or address must not be called; the message says why.

    An OSError, so that the HTTP client passes it on like any failure to connect.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EACCES, reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackTarget:
    """A checked callback URL, in the spelling to be used; `address` is set for IP literals."""

    url: str
    host: str
    port: int
    address: Address | None = None


def check_callback_url(url: str, rules: "EgressRules | None" = None) -> CallbackTarget:
    """Parse and check a callback URL (`EgressRefusedError`); names are resolved elsewhere."""
    parts, port = _split(url)
    if parts.scheme not in DEFAULT_PORTS:
        raise EgressRefusedError("the scheme must be http or https")
    if "@" in parts.netloc:
        raise EgressRefusedError("the URL must not hold a user or password")
    if "#" in url:
        raise EgressRefusedError("the URL must not have a fragment")
    rules = rules or EgressRules()
    if port < 1 or not (rules.sandbox or port in rules.ports):
        ports = ", ".join(map(str, sorted(rules.ports)))
        raise EgressRefusedError(f"the port must be one of {ports}")
    host, address = _check_host(parts, rules)
    authority = host if port == DEFAULT_PORTS[parts.scheme] else f"{host}:{port}"
    # Rebuilt from what was checked, so that no second parser can read another host from it.
    query = f"?{parts.query}" if "?" in url else ""
    url = f"{parts.scheme}://{authority}{parts.path or '/'}{query}"
    return CallbackTarget(url=url, host=host, port=port, address=address)


def address_refusal(address: str | Address, rules: "EgressRules | None" = None) -> str | None:
    """Return why an address must not be called, or None.

    Private networks may be called where the rules list them, metadata addresses never.
    """
    ip = ip_address(address)
    if reason := _listed(ip, _NEVER):
        return reason
    if rules is not None and rules.allows_private(ip):
        return None
    if reason := _listed(ip, _NOT_PUBLIC):
        return reason
    # Addresses on no list are refused too, unless they are where public addresses are allocated.
    public = ip in _PUBLIC_IPV6 if ip.version == 6 else ip.is_global and not ip.is_reserved  # noqa: PLR2004
    return None if public else "not a public address"


async def check_callback_registration(
    url: str, rules: "EgressRules | None" = None, *, lookup: Lookup | None = None
) -> CallbackTarget:
    """Check a callback URL and every address that its name has now (`EgressRefusedError`)."""
    target = check_callback_url(url, rules)
    if target.address is None:
        resolver = CheckedResolver(rules=rules, lookup=lookup)
        try:
            await resolver.resolve(target.host, target.port)
        except EgressRefusedError:
            raise
        except OSError as error:
            raise EgressRefusedError(f"the name {target.host} cannot be resolved") from error
        finally:
            await resolver.close()
    return target


class CheckedResolver:
    """Resolves names for the HTTP client, which connects to no address but those it returns.

    The client resolves no IP literals: `check_callback_url` and `checked_socket` check those.
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
        self._lookup = lookup or self._ask_system
        self._threads: ThreadPoolExecutor | None = None
        self._asked: dict[str, asyncio.Task[Sequence[str]]] = {}

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002 - every answer is checked
    ) -> "list[ResolveResult]":
        """Return a name's addresses; one refused refuses the name (`EgressRefusedError`)."""
        release_slot()
        try:
            async with asyncio.timeout(self._timeout_s):
                answers = await asyncio.shield(self._ask_once(host))
        except TimeoutError as error:
            raise OSError(errno.ETIMEDOUT, "the name was not resolved in time") from error
        if not answers:
            raise OSError(errno.ENOENT, "the name has no address")
        for answer in answers:
            if reason := address_refusal(answer, self._rules):
                raise EgressRefusedError(f"the name {host} leads to a refused address: {reason}")
        return [_result(host, answer, port) for answer in answers]

    async def close(self) -> None:
        for task in self._asked.values():
            task.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    def _ask_once(self, host: str) -> asyncio.Task[Sequence[str]]:
        """Share one lookup among all callers of the same name, so it holds one thread."""
        task = self._asked.get(host)
        if task is None:
            task = asyncio.ensure_future(self._ask(host))
            self._asked[host] = task
            task.add_done_callback(lambda done: self._forget(host, done))
        return task

    async def _ask(self, host: str) -> Sequence[str]:
        return await self._lookup(host)

    def _forget(self, host: str, done: asyncio.Task[Sequence[str]]) -> None:
        self._asked.pop(host, None)
        if not done.cancelled():
            done.exception()  # retrieved, even when every caller has given up

    async def _ask_system(self, host: str) -> Sequence[str]:
        if self._threads is None:
            # Threads of its own: unresponsive names must not block other users of the loop's
            # threads.
            self._threads = ThreadPoolExecutor(DNS_THREADS_MAX, thread_name_prefix="dns")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _system_addresses, host)


def checked_socket(info: AddressInfo, rules: "EgressRules | None" = None) -> socket.socket:
    """Open the socket of a connection (`EgressRefusedError`); every one is opened here."""
    family, kind, protocol, _, address = info
    if reason := address_refusal(str(address[0]), rules):
        raise EgressRefusedError(f"the address is refused: {reason}")
    return socket.socket(family, kind, protocol)


_Network = IPv4Network | IPv6Network
_Listing = tuple[tuple[str, tuple[_Network, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressRules:
    """What merchants' endpoints may be beside public addresses at the usual ports."""

    sandbox: bool = False  # any port, loopback and every private network
    networks: tuple[_Network, ...] = ()
    ports: frozenset[int] = PORTS

    def allows_private(self, ip: Address) -> bool:
        if self.sandbox and any(ip in network for network in _SANDBOX):
            return True
        is_listable = any(ip in network for network in _LISTABLE)
        return is_listable and any(ip in network for network in self.networks)


def egress_rules(settings: Settings) -> EgressRules:
    """Return the rules of an installation: `webhook_networks` and `webhook_ports`."""
    return EgressRules(
        sandbox=settings.sandbox,
        networks=tuple(map(parse_ip_network, split_list(settings.webhook_networks))),
        ports=PORTS.union(map(int, split_list(settings.webhook_ports))),
    )


def _networks(*texts: str) -> tuple[_Network, ...]:
    return tuple(ip_network(text) for text in texts)


# `is_global` alone lets through multicast, NAT64, 6to4 and cloud metadata, and differs between
# patch releases of Python; so the ranges are written out (IANA special-purpose registries).
_NEVER: _Listing = (
    (
        "cloud metadata",
        _networks(
            "169.254.169.254",
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "fd00:ec2::/32",
            "fd00:42::42",
            "fd20:ce::254",
        ),
    ),
    ("link-local", _networks("169.254.0.0/16", "fe80::/10")),
    ("unspecified", _networks("0.0.0.0/8", "::/128")),
    ("multicast", _networks("224.0.0.0/4", "ff00::/8")),
    ("broadcast", _networks("255.255.255.255")),
    ("IPv4 inside IPv6", _networks("::ffff:0:0/96")),
)
_SANDBOX = _networks(
    "127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "::1"
)
#: What a setting may open beside public addresses; never what is inside IPv6, as of NAT64.
_LISTABLE = (*_SANDBOX, *_networks("100.64.0.0/10"))
_NOT_PUBLIC: _Listing = (
    ("loopback", _networks("127.0.0.0/8", "::1")),
    ("private", _networks("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")),
    ("shared by a provider", _networks("100.64.0.0/10")),
    ("reserved", _networks("192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4")),
    (
        "for documentation",
        _networks("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
        + _networks("2001:db8::/32", "3fff::/20"),
    ),
    ("6to4", _networks("192.88.99.0/24", "2002::/16")),
    ("NAT64", _networks("64:ff9b::/96", "64:ff9b:1::/48")),
    ("reserved", _networks("2001::/23", "2620:4f:8000::/48")),  # Teredo, ORCHID, AS112
)
_PUBLIC_IPV6 = ip_network("2000::/3")

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


def _listed(ip: Address, listing: _Listing) -> str | None:
    for reason, networks in listing:
        if any(ip in network for network in networks):
            return reason
    return None


def _split(url: str) -> tuple[SplitResult, int]:
    if len(url) > URL_CHARS_MAX:
        raise EgressRefusedError(f"the URL must not be longer than {URL_CHARS_MAX} characters")
    # urlsplit would drop tabs and line ends silently, and browsers read a backslash as a slash.
    if not all("!" <= char <= "~" and char != "\\" for char in url):
        raise EgressRefusedError("the URL must be plain ASCII, names in their xn-- form")
    try:
        parts = urlsplit(url)
        return parts, DEFAULT_PORTS.get(parts.scheme, 0) if parts.port is None else parts.port
    except ValueError as error:
        raise EgressRefusedError("the URL cannot be read") from error


def _check_host(parts: SplitResult, rules: "EgressRules") -> tuple[str, Address | None]:
    host = parts.hostname or ""
    if not 1 <= len(host) <= HOST_CHARS_MAX:
        raise EgressRefusedError(f"the host must have 1 to {HOST_CHARS_MAX} characters")
    if "[" in parts.netloc and ":" not in host:
        raise EgressRefusedError("brackets are for IPv6 addresses")
    address = _literal(host)
    if address is None:
        if not all(_LABEL.fullmatch(label) for label in host.removesuffix(".").split(".")):
            raise EgressRefusedError("the host is not a name")
        return host, None
    if reason := address_refusal(address, rules):
        raise EgressRefusedError(f"the address is refused: {reason}")
    return f"[{address}]" if address.version == 6 else str(address), address  # noqa: PLR2004


def _literal(host: str) -> Address | None:
    """Parse an IP literal; None for a name.

    The C library accepts `0x7f.1` and `127.1` as addresses. So a host whose last label is a number
    must be a dotted quad, as in the WHATWG URL standard.
    """
    is_number = _NUMBER.fullmatch(host.removesuffix(".").rpartition(".")[2]) is not None
    if ":" not in host and not is_number:
        return None
    if "%" not in host:
        try:
            return ip_address(host)
        except ValueError:
            pass
    raise EgressRefusedError("the address must be written in its usual form")


def _system_addresses(host: str) -> list[str]:
    # As bytes: a text would go through a codec that maps other digits to ASCII ones.
    infos = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in infos]


def _result(host: str, answer: str, port: int) -> "ResolveResult":
    family = socket.AF_INET6 if ":" in answer else socket.AF_INET
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return {
        "hostname": host,
        "host": answer,
        "port": port,
        "family": family,
        "proto": 0,
        "flags": flags,
    }
