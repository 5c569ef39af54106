"""The Host header of a request: one, and one that can be read (RFC 9112, 3.2)."""

import re
from collections.abc import Iterable

_HOST = re.compile(rb"(?:[A-Za-z0-9._~%!$&'()*+;=-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?", re.ASCII)
_SCHEMES = (b"http://", b"https://")


def is_host_clear(version: str, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Tell whether two servers agree to which host a request goes.

    HTTP/1.0 may come without the header, as health checks do. A target with an authority must name
    the same host.
    """
    hosts = [value for name, value in headers if name == b"host"]
    if not hosts:
        return version == "1.0"
    [host, *more] = hosts
    if more or not _HOST.fullmatch(host):
        return False
    scheme = next((each for each in _SCHEMES if target[: len(each)].lower() == each), None)
    if scheme is None:
        return True
    authority = re.split(rb"[/?#]", target[len(scheme) :], maxsplit=1)[0]
    return authority.lower() == host.lower()
