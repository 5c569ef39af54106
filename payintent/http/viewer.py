"""The viewer's address and country, as reported by trusted proxies.

The country is accepted only if the request carries the edge network's secret.
"""

import hmac
import re
import time
from collections.abc import Callable, Sequence

from prometheus_client import Counter
from starlette.requests import Request

from payintent.core.addresses import (
    UNREADABLE_ADDRESS,
    Address,
    Network,
    parse_ip_address,
    parse_ip_network,
)
from payintent.core.countries import UNKNOWN_COUNTRY, is_edge_country
from payintent.runtime.log import get_logger
from payintent.runtime.setting_types import split_list
from payintent.runtime.settings import Settings

_QUOTE = '"'
_SPACE = " \t"
_PORT = r"(?::(?:[0-9]{1,5}|_[0-9A-Za-z._-]{1,64}))?"
_BRACKETED_NODE = re.compile(r"\[([0-9A-Fa-f:.]{2,45})\]" + _PORT, re.ASCII)
_IPV4_NODE = re.compile(r"([0-9.]{7,15})" + _PORT, re.ASCII)
_PAIR = re.compile(
    r"[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=(?:\"((?:[^\"\\]|\\.)*)\"|([^\",; \t]*))[ \t]*", re.ASCII
)


def split_x_forwarded_for(values: Sequence[str]) -> list[str]:
    entries = (entry.strip(_SPACE) for entry in ",".join(values).split(","))
    return [entry for entry in entries if entry]


def split_forwarded(values: Sequence[str]) -> list[str] | None:
    """Return the `for` value of each `Forwarded` element, or None if any element is malformed.

    An element without `for` counts as `unknown`. An unclosed quotation mark from a client would
    swallow the elements that proxies append, so it makes the whole header malformed.
    """
    text = ",".join(values)
    nodes: list[str] = []
    node: str | None = None
    has_pairs, position = False, 0
    while position < len(text):
        if text[position] in ",; \t":
            if text[position] == "," and has_pairs:
                nodes.append(node or "unknown")
                node, has_pairs = None, False
            position += 1
            continue
        pair = _PAIR.match(text, position)
        if pair is None or text[pair.end() : pair.end() + 1] not in {"", ",", ";"}:
            return None
        if pair[1].lower() == "for":
            if node is not None:
                return None
            node = pair[3] if pair[2] is None else pair[2]
        has_pairs, position = True, pair.end()
    return [*nodes, node or "unknown"] if has_pairs else nodes


def parse_forwarded_node(text: str) -> Address | None:
    """Parse a hop with an optional port, brackets and quotes. Returns None if it is invalid."""
    if len(text) > 1 and text[0] == text[-1] == _QUOTE:
        text = text[1:-1]
    match = _BRACKETED_NODE.fullmatch(text) or _IPV4_NODE.fullmatch(text)
    return parse_ip_address(match[1] if match else text)


_X_FORWARDED_FOR = "X-Forwarded-For"
_FORWARDED = "Forwarded"
_LOG_INTERVAL_S = 60.0  # per reason, because a misconfigured proxy affects every request
_HOP_CHARS_MAX = 64
_log = get_logger("api")

UNREADABLE_VIEWERS = Counter(
    "payintent_viewer_addresses_unreadable_total",
    "Requests from a declared proxy without a readable viewer address",
    ["reason"],
)


class _UnreadableError(Exception):
    """The viewer's address cannot be determined; `reason` is the metric's label."""

    def __init__(self, reason: str, hop: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hop = hop


class ViewerReader:
    """Reads viewer headers from trusted proxies; headers from other peers are ignored."""

    def __init__(self, settings: Settings, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._country_header = settings.edge_country_header
        self._secret_header = settings.edge_secret_header
        self._secret = settings.edge_secret.get_secret_value().encode()
        proxies = split_list(settings.edge_trusted_proxies)
        self._trusted_networks: Sequence[Network] = list(map(parse_ip_network, proxies))
        header = settings.edge_address_header
        self._address_headers = (header,) if header else (_X_FORWARDED_FOR, _FORWARDED)
        self._monotonic = monotonic
        self._next_log_at: dict[str, float] = {}  # by reason

    def get_viewer_country(self, request: Request) -> str | None:
        """Return the viewer's country, or None if there is no trusted header.

        `XX` means that the edge network did not send a valid country. `T1` means Tor.
        """
        return _read_cached(request, "viewer_country", self._read_country)

    def get_viewer_address(self, request: Request) -> str | None:
        """Return the viewer's address, or `UNREADABLE_ADDRESS` if the headers are ambiguous.

        Returns None if a trusted proxy does not send an address, as in its own requests, or if no
        proxy is declared, because the address may then be a proxy's. In `X-Forwarded-For` and
        `Forwarded`, the last address that is not a trusted proxy's is used, because a client can
        forge everything before it.
        """
        return _read_cached(request, "viewer_address", self._read_address)

    def _read_country(self, request: Request) -> str | None:
        if not self._secret or request.client is None:
            return None
        if not self._is_trusted(parse_ip_address(request.client.host)):
            return None
        values = request.headers.getlist(self._secret_header)
        if len(values) != 1 or not hmac.compare_digest(values[0].encode(), self._secret):
            return None
        countries = request.headers.getlist(self._country_header)
        if not countries:
            return None
        country = countries[0].strip().upper() if len(countries) == 1 else UNKNOWN_COUNTRY
        return country if is_edge_country(country) else UNKNOWN_COUNTRY

    def _read_address(self, request: Request) -> str | None:
        if not self._trusted_networks:
            return None
        try:
            return str(self._find_address(request))
        except _UnreadableError as error:
            self._record_unreadable(error)
            return None if error.reason == "missing" else UNREADABLE_ADDRESS

    def _find_address(self, request: Request) -> Address:
        """Return the last address that is not a trusted proxy's, or raise `_UnreadableError`."""
        peer = parse_ip_address(request.client.host) if request.client else None
        if peer is None:
            raise _UnreadableError("peer")
        if not self._is_trusted(peer):
            return peer
        addresses = {self._find_last_untrusted(hops) for hops in self._read_hop_lists(request)}
        if len(addresses) > 1:  # the client set a header that the proxy does not overwrite
            raise _UnreadableError("contradictory")
        if not addresses:
            raise _UnreadableError("missing")
        return addresses.pop()

    def _read_hop_lists(self, request: Request) -> list[list[str]]:
        """Return the hops of each header that is not empty."""
        hop_lists: list[list[str]] = []
        if _X_FORWARDED_FOR in self._address_headers:
            hop_lists.append(split_x_forwarded_for(request.headers.getlist(_X_FORWARDED_FOR)))
        if _FORWARDED in self._address_headers:
            hops = split_forwarded(request.headers.getlist(_FORWARDED))
            if hops is None:
                raise _UnreadableError("malformed")
            hop_lists.append(hops)
        return [hops for hops in hop_lists if hops]

    def _find_last_untrusted(self, hops: Sequence[str]) -> Address:
        for hop in reversed(hops):
            address = parse_forwarded_node(hop)
            if address is None:
                raise _UnreadableError("malformed", hop)
            if not self._is_trusted(address):
                return address
        raise _UnreadableError("proxies_only")

    def _record_unreadable(self, error: _UnreadableError) -> None:
        UNREADABLE_VIEWERS.labels(error.reason).inc()
        now = self._monotonic()
        if now >= self._next_log_at.get(error.reason, now):
            self._next_log_at[error.reason] = now + _LOG_INTERVAL_S
            _log.warning(
                "viewer_address_unreadable", reason=error.reason, hop=error.hop[:_HOP_CHARS_MAX]
            )

    def get_caller_address(self, request: Request) -> str | None:
        """Return the viewer's address, or the peer's if it is unknown.

        Several clients may share a peer's address.
        """
        peer = request.client.host if request.client else None
        address = self.get_viewer_address(request)
        return peer or address if address in {None, UNREADABLE_ADDRESS} else address

    def _is_trusted(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self._trusted_networks)


def _read_cached(request: Request, name: str, read: Callable[[Request], str | None]) -> str | None:
    """Cache the result of `read` in the request's scope under `name`."""
    if name not in request.scope:
        request.scope[name] = read(request)
    return request.scope[name]
