"""Validation of the Host header (RFC 9112, 3.2)."""

import re
from collections.abc import Iterable

_HOST = re.compile(rb"(?:[A-Za-z0-9._~%!$&'()*+;=-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?", re.ASCII)
_SCHEMES = (b"http://", b"https://")


def is_host_clear(version: str, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether two servers would read the same host from a request.

    HTTP/1.0 requests may omit the header, as health checks do. The authority of a target must be
    the same host.
    """
    hosts = [value for name, value in headers if name == b"host"]
    if not hosts:
        return version == "1.0"
    [host, *more] = hosts
    if more or not _HOST.fullmatch(host):
        return False
    scheme = next((name for name in _SCHEMES if target[: len(name)].lower() == name), None)
    if scheme is None:
        return True
    authority = re.split(rb"[/?#]", target[len(scheme) :], maxsplit=1)[0]
    return authority.lower() == host.lower()
