"""Parsing of `X-Forwarded-For` and `Forwarded` (RFC 7239).

Both list the addresses on the way of a request, beginning with the client. An address may have a
port, an IPv6 address may be in brackets, and a proxy may replace an address by an identifier.
"""

import re
from collections.abc import Sequence

from payintent.domain.ip_address import Address, parse_ip_address

_QUOTE = '"'
_SPACE = " \t"
_PORT = r"(?::(?:[0-9]{1,5}|_[0-9A-Za-z._-]{1,64}))?"
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]{2,45})\]" + _PORT, re.ASCII)
_IPV4 = re.compile(r"([0-9.]{7,15})" + _PORT, re.ASCII)
_PAIR = re.compile(
    r"[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=(?:\"((?:[^\"\\]|\\.)*)\"|([^\",; \t]*))[ \t]*", re.ASCII
)


def split_x_forwarded_for(values: Sequence[str]) -> list[str]:
    entries = (entry.strip(_SPACE) for entry in ",".join(values).split(","))
    return [entry for entry in entries if entry]


def split_forwarded(values: Sequence[str]) -> list[str] | None:
    """Return the `for` of each element of all `Forwarded` headers; None if one is malformed.

    An element without `for` is `unknown`. A quotation mark that a client did not close extends into
    the elements that proxies append, so the whole header is malformed.
    """
    text = ",".join(values)
    nodes: list[str] = []
    node: str | None = None
    has_pairs, at = False, 0
    while at < len(text):
        if text[at] in ",; \t":
            if text[at] == "," and has_pairs:
                nodes.append(node or "unknown")
                node, has_pairs = None, False
            at += 1
            continue
        pair = _PAIR.match(text, at)
        if pair is None or text[pair.end() : pair.end() + 1] not in {"", ",", ";"}:
            return None
        if pair[1].lower() == "for":
            if node is not None:
                return None
            node = pair[3] if pair[2] is None else pair[2]
        has_pairs, at = True, pair.end()
    return [*nodes, node or "unknown"] if has_pairs else nodes


def parse_forwarded_node(text: str) -> Address | None:
    """Parse a hop with optional port, brackets and quotes; None if it is not an address."""
    if len(text) > 1 and text[0] == text[-1] == _QUOTE:
        text = text[1:-1]
    match = _BRACKETED.fullmatch(text) or _IPV4.fullmatch(text)
    return parse_ip_address(match[1] if match else text)
