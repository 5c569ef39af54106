"""Parse IP addresses, and group the addresses of a client."""

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: The address of a caller if it cannot be determined. It matches every address rule, and all these
#: callers share a rate limit.
UNREADABLE_ADDRESS = "unreadable"

_CLIENT_PREFIX = 64  # an IPv6 client controls all addresses of its /64
_MAPPED_PREFIX = 96
_TEXT_MAX = 64  # 45 characters and an interface name
_CACHED_MAX = 10_000  # about 200 bytes each


def parse_ip_address(text: str) -> Address | None:
    """Parse an address; returns None if it is invalid. Mapped addresses become IPv4."""
    return _parse(text) if len(text) <= _TEXT_MAX else None


@lru_cache(maxsize=_CACHED_MAX)  # every request parses the addresses of its peer and client
def _parse(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def parse_ip_network(text: str) -> Network:
    """Parse a network or an address; raises `ValueError`. Mapped networks become IPv4."""
    network = ip_network(text)
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    if mapped is None or network.prefixlen < _MAPPED_PREFIX:
        return network
    return IPv4Network((mapped, network.prefixlen - _MAPPED_PREFIX))


def ip_network_of(address: Address, length: int) -> Network:
    if isinstance(address, IPv4Address):
        return IPv4Network((int(address), length), strict=False)
    return IPv6Network((int(address), length), strict=False)


def client_address_key(address: str) -> str:
    """Return the rate limit key of an address: the address, or the /64 of an IPv6 address."""
    ip = parse_ip_address(address)
    if isinstance(ip, IPv6Address):
        return str(ip_network_of(ip, _CLIENT_PREFIX))
    return address if ip is None else str(ip)
