"""The viewer's address and country: only from trusted proxies, the country only with the secret."""

import hmac
from collections.abc import Callable, Sequence

from starlette.requests import Request

from payintent.config import Settings
from payintent.domain.ip_address import Address, Network, parse_ip_address, parse_ip_network

_FORWARDED = "X-Forwarded-For"


class ViewerReader:
    """Reads the edge network's headers about a viewer; from other senders they are ignored."""

    def __init__(self, settings: Settings) -> None:
        self._country_header = settings.edge_country_header
        self._secret_header = settings.edge_secret_header
        self._secret = settings.edge_secret.get_secret_value().encode()
        self._trusted: Sequence[Network] = [
            parse_ip_network(network.strip())
            for network in settings.edge_trusted_proxies.split(",")
            if network.strip()
        ]

    def viewer_country(self, request: Request) -> str | None:
        """Return the viewer's country; None where no trusted header has one."""
        return _read_once(request, "viewer_country", self._read_country)

    def viewer_address(self, request: Request) -> str | None:
        """Return the viewer's address; None where no proxy is declared: it may be a proxy's.

        Of `X-Forwarded-For` the last address counts that is not a trusted proxy's own: all before
        it was written by the client.
        """
        return _read_once(request, "viewer_address", self._read_address)

    def _read_country(self, request: Request) -> str | None:
        if not self._secret or request.client is None:
            return None
        if not self._trusts(parse_ip_address(request.client.host)):
            return None
        given = request.headers.getlist(self._secret_header)
        if len(given) != 1 or not hmac.compare_digest(given[0].encode(), self._secret):
            return None
        countries = request.headers.getlist(self._country_header)
        return countries[0].upper() if len(countries) == 1 else None

    def _read_address(self, request: Request) -> str | None:
        if not self._trusted or request.client is None:
            return None
        peer = request.client.host
        hops = ",".join(request.headers.getlist(_FORWARDED)).split(",")
        for hop in [peer, *reversed(hops)]:
            address = parse_ip_address(hop.strip())
            if address is None:
                return None
            if not self._trusts(address):
                return str(address)
        return None

    def caller_address(self, request: Request) -> str | None:
        """Return the viewer's address, else that of the connected client: many may share it."""
        peer = request.client.host if request.client else None
        return self.viewer_address(request) or peer or None

    def _trusts(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self._trusted)


def _read_once(request: Request, name: str, read: Callable[[Request], str | None]) -> str | None:
    """Read something of a request at its first use; it is used several times."""
    if name not in request.scope:
        request.scope[name] = read(request)
    return request.scope[name]
