"""Normalize the origins of URLs, so that they can be compared as text."""

from ipaddress import AddressValueError, IPv6Address

_DEFAULT_PORTS = {"http": 80, "https": 443}
_PORT_MAX = 65_535
_PORT_DIGITS_MAX = 5
_HOST_MAX = 253
_LABEL_MAX = 63
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
_HOST_CHARS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


def web_origin(url: str) -> str | None:
    """Return the origin of an absolute URL with lower-case scheme and host, without default port.

    Returns None unless the scheme is http or https, and for URLs that browsers may parse
    differently: user names, backslashes, spaces, control characters, non-ASCII hosts (RFC 6454).
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
    """Return the URL if a page may link to it, otherwise None."""
    return url if url is not None and web_origin(url) is not None else None


def is_confidential(url: str) -> bool:
    """Return whether requests to a URL cannot be read in transit: https, or a local host."""
    origin = web_origin(url)
    if origin is None:
        return False
    scheme, _, authority = origin.partition("://")
    return scheme == "https" or _split(authority)[0] in _LOOPBACK


def _split(authority: str) -> tuple[str, int | None]:
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
