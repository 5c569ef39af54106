"""The viewer's country: believed only from a trusted proxy that knows the shared secret."""

import hmac
import ipaddress
from collections.abc import Sequence

from starlette.requests import Request

from payintent.config import Settings

_FORWARDED = "X-Forwarded-For"
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Edge:
    """Reads what the edge network says of a viewer; from anybody else it is ignored."""

    def __init__(self, settings: Settings) -> None:
        self._country_header = settings.edge_country_header
        self._secret_header = settings.edge_secret_header
        self._secret = settings.edge_secret.get_secret_value().encode()
        self._trusted: Sequence[_Network] = [
            ipaddress.ip_network(one.strip())
            for one in settings.edge_trusted_proxies.split(",")
            if one.strip()
        ]

    def viewer_country(self, request: Request) -> str | None:
        """Give the viewer's country; None where nobody we trust has said one."""
        if not self._secret or request.client is None or not self._trusts(request.client.host):
            return None
        given = request.headers.getlist(self._secret_header)
        if len(given) != 1 or not hmac.compare_digest(given[0].encode(), self._secret):
            return None
        countries = request.headers.getlist(self._country_header)
        return countries[0].upper() if len(countries) == 1 else None

    def viewer_address(self, request: Request) -> str | None:
        """Give the viewer's address; None where no proxy is declared, for then it may be a proxy's.

        Of `X-Forwarded-For` the last address counts that is not a trusted proxy's own: whatever
        stands before it was written by whoever came there.
        """
        if not self._trusted or request.client is None:
            return None
        peer = request.client.host
        hops = [one.strip() for one in ",".join(request.headers.getlist(_FORWARDED)).split(",")]
        for hop in [peer, *reversed(hops)]:
            if not _is_address(hop):
                return None
            if not self._trusts(hop):
                return str(ipaddress.ip_address(hop))
        return None

    def _trusts(self, host: str) -> bool:
        if not _is_address(host):  # a Unix socket has none
            return False
        address = ipaddress.ip_address(host)
        return any(address in network for network in self._trusted)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
