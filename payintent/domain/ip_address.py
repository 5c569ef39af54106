"""IP addresses: how they are parsed, and which of them count as one client."""

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: The address of a caller whose own cannot be read. Rules on addresses take it for any address that
#: they list, and all such callers count as one.
UNREADABLE_ADDRESS = "unreadable"

_OWN_PREFIX = 64  # an IPv6 client controls all addresses of its /64
_MAPPED_PREFIX = 96
_TEXT_MAX = 64  # the longest address has 45 characters, and the name of an interface may follow
_PARSED_MAX = 10_000  # addresses in memory, some 200 bytes each


def parse_ip_address(text: str) -> Address | None:
    """Parse an address; None where it is none. A mapped one (`::ffff:192.0.2.1`) becomes IPv4."""
    return _parse(text) if len(text) <= _TEXT_MAX else None


@lru_cache(maxsize=_PARSED_MAX)  # every request parses its peer and its client, again and again
def _parse(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def parse_ip_network(text: str) -> Network:
    """Parse a network or an address; `ValueError` where it is neither. Mapped ones become IPv4."""
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
    """Return the key that requests from an address count under: itself, for IPv6 its /64."""
    parsed = parse_ip_address(address)
    if isinstance(parsed, IPv6Address):
        return str(ip_network_of(parsed, _OWN_PREFIX))
    return address if parsed is None else str(parsed)
