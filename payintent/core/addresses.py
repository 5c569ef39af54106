"""Parse IP addresses, web origins and email addresses."""

import re
from functools import lru_cache
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: Placeholder for a caller's address that cannot be determined. It matches every address rule, and
#: all such callers share a rate limit.
UNREADABLE_ADDRESS = "unreadable"

_CLIENT_PREFIX = 64  # an IPv6 client controls all addresses in its /64
_MAPPED_PREFIX = 96
_ADDRESS_CHARS_MAX = 64  # 45 characters plus an interface name
_CACHE_SIZE = 10_000  # about 200 bytes each


def parse_ip_address(text: str) -> Address | None:
    """Parse an address, or return None if it is invalid. IPv4-mapped addresses become IPv4."""
    return _parse_cached(text) if len(text) <= _ADDRESS_CHARS_MAX else None


@lru_cache(maxsize=_CACHE_SIZE)  # the peer and client addresses of every request are parsed
def _parse_cached(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    ipv4_address = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return ipv4_address or address


def parse_ip_network(text: str) -> Network:
    """Parse a network or an address. Raises `ValueError`. IPv4-mapped networks become IPv4."""
    network = ip_network(text)
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    if mapped is None or network.prefixlen < _MAPPED_PREFIX:
        return network
    return IPv4Network((mapped, network.prefixlen - _MAPPED_PREFIX))


def get_ip_network(address: Address, length: int) -> Network:
    if isinstance(address, IPv4Address):
        return IPv4Network((int(address), length), strict=False)
    return IPv6Network((int(address), length), strict=False)


def make_client_address_key(address: str) -> str:
    """Return the rate limit key of an address: the address itself, or its /64 for IPv6."""
    ip = parse_ip_address(address)
    if isinstance(ip, IPv6Address):
        return str(get_ip_network(ip, _CLIENT_PREFIX))
    return address if ip is None else str(ip)


_DEFAULT_PORTS = {"http": 80, "https": 443}
_PORT_MAX = 65_535
_PORT_DIGITS_MAX = 5
_HOST_MAX = 253
_LABEL_MAX = 63
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
_HOST_CHARS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


def parse_web_origin(url: str) -> str | None:
    """Return the origin (RFC 6454) of an absolute URL, in lower case and without a default port.

    Returns None if the scheme is not http or https, or if browsers may parse the URL differently
    because it contains a user name, a backslash, a space, a control character or a non-ASCII host.
    """
    if "\\" in url or not url.isprintable() or " " in url:
        return None
    scheme, separator, remainder = url.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in _DEFAULT_PORTS:
        return None
    authority = remainder.partition("/")[0].partition("?")[0].partition("#")[0].lower()
    host, port = _split_authority(authority)
    if port is None or not _is_host(host):
        return None
    suffix = "" if port in {0, _DEFAULT_PORTS[scheme]} else f":{port}"
    return f"{scheme}://{host}{suffix}"


def get_linkable_url(url: str | None) -> str | None:
    """Return the URL if a page may link to it, otherwise None."""
    return url if url is not None and parse_web_origin(url) is not None else None


def is_confidential(url: str) -> bool:
    """Return whether requests to a URL are protected in transit (https or a loopback host)."""
    origin = parse_web_origin(url)
    if origin is None:
        return False
    scheme, _, authority = origin.partition("://")
    return scheme == "https" or _split_authority(authority)[0] in _LOOPBACK


def _split_authority(authority: str) -> tuple[str, int | None]:
    """Split host and port; the port is 0 if it is missing and None if it is invalid."""
    end = authority.find("]") + 1  # an IPv6 address contains colons
    host, colon, port = authority[end:].partition(":")
    host = authority[:end] + host
    if not colon:
        return host, 0
    is_port = port.isascii() and port.isdecimal() and len(port) <= _PORT_DIGITS_MAX
    return host, int(port) if is_port and 0 < int(port) <= _PORT_MAX else None


def _is_host(host: str) -> bool:
    if host.startswith("["):
        try:
            return host.endswith("]") and str(IPv6Address(host[1:-1])) == host[1:-1]
        except AddressValueError:
            return False
    labels = host.split(".")
    return len(host) <= _HOST_MAX and all(
        0 < len(label) <= _LABEL_MAX and _HOST_CHARS.issuperset(label) for label in labels
    )


_MAIL_ADDRESS_MAX = 254  # RFC 5321, section 4.5.3.1.3, without the brackets
_MAIL_LOCAL_PART_MAX = 64
_MAIL_HOST_MAX = 253
#: RFC 5322's dot-atom: the unquoted form, which every server accepts.
_MAIL_LOCAL_PART = re.compile(r"[\w!#$%&'*+/=?^`{|}~-]+(?:\.[\w!#$%&'*+/=?^`{|}~-]+)*", re.ASCII)
_MAIL_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")  # RFC 1123, section 2.1


def is_mail_address(text: str) -> bool:
    """Return whether a string is a plain ASCII email address, which is safe to use in headers."""
    local_part, _, host = text.rpartition("@")
    if (
        len(text) > _MAIL_ADDRESS_MAX
        or len(local_part) > _MAIL_LOCAL_PART_MAX
        or len(host) > _MAIL_HOST_MAX
    ):
        return False
    labels = host.split(".")
    is_host = len(labels) > 1 and all(_MAIL_LABEL.fullmatch(label) for label in labels)
    return is_host and _MAIL_LOCAL_PART.fullmatch(local_part) is not None
