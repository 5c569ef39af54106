"""The origin of a URL in one normal form, so that origins can be compared as texts."""

from ipaddress import AddressValueError, IPv6Address

_DEFAULT_PORTS = {"http": 80, "https": 443}
_PORT_MAX = 65_535
_PORT_DIGITS_MAX = 5
_HOST_MAX = 253
_LABEL_MAX = 63
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
_HOST_CHARS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


def web_origin(url: str) -> str | None:
    """Return the origin of an absolute URL: lower-case scheme and host, no default port.

    None for anything else, and for what browsers may parse differently: other schemes, user
    names, backslashes, blanks, control characters, hosts that are not ASCII names (RFC 6454).
    """
    if "\\" in url or not url.isprintable() or " " in url:
        return None
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in _DEFAULT_PORTS:
        return None
    authority = rest.partition("/")[0].partition("?")[0].partition("#")[0].lower()
    host, port = _split(authority)
    if port is None or not _is_host(host):
        return None
    suffix = "" if port in {0, _DEFAULT_PORTS[scheme]} else f":{port}"
    return f"{scheme}://{host}{suffix}"


def web_url(url: str | None) -> str | None:
    """Return a URL that a page may lead to: one of the web; None for anything else."""
    return url if url is not None and web_origin(url) is not None else None


def is_confidential(url: str) -> bool:
    """Tell whether nobody on the way reads what an address is sent: https, or this machine."""
    origin = web_origin(url)
    if origin is None:
        return False
    scheme, _, authority = origin.partition("://")
    return scheme == "https" or _split(authority)[0] in _LOOPBACK


def _split(authority: str) -> tuple[str, int | None]:
    """Split off the port; 0 where none is given, None where it is not a port."""
    end = authority.find("]") + 1  # of an IPv6 address, which contains colons itself
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
