"""Icons of payment methods, tokens and chains: our own drawings, no trademarks."""

import re
from collections.abc import Mapping
from functools import lru_cache
from html import escape

from markupsafe import Markup

_LINES = 'fill="none" stroke="currentColor" stroke-width="1.6" stroke-linejoin="round"'
_METHODS = {
    "card": '<rect x="2" y="5" width="20" height="14" rx="2.5"/><path d="M2 10h20M6 15h4"/>',
    "bank": '<path d="M3 9.5 12 4l9 5.5zM5.5 10v7M10 10v7M14 10v7M18.5 10v7M3 20h18"/>',
    "store": '<path d="M4 11v9h16v-9M3 9l2-5h14l2 5a3 3 0 0 1-6 0 3 3 0 0 1-6 0 3 3 0 0 1-6 0z"/>',
    "phone": '<rect x="6.5" y="2" width="11" height="20" rx="2.5"/><path d="M11 18.5h2"/>',
    "qr": '<path d="M3 3h7v7H3zM14 3h7v7h-7zM3 14h7v7H3zM14 14h3v3h-3zM21 14v3M17 21h4v-1"/>',
    "page": '<path d="M14 4h6v6M20 4l-9 9M18 14v6H4V6h6"/>',
}
#: Words in a label; the first match decides.
_LABELS = (
    ("card", re.compile(r"\b(cards?|credit|debit)\b", re.IGNORECASE)),
    ("store", re.compile(r"\b(stores?|konbini|counter|cash|cvs)\b", re.IGNORECASE)),
    ("phone", re.compile(r"\b(mobile|app|wallet|e-?wallet)\b|(?<=\w)pay\b", re.IGNORECASE)),
    ("bank", re.compile(r"\b(bank|banking|transfer|account|atm)\b", re.IGNORECASE)),
)
_KINDS = {"card": "card", "qr": "qr"}

_DISC, _HEXAGON = '<circle cx="12" cy="12" r="11" fill="{}"/>', '<path d="{}" fill="{}"/>'
_CORNERS = "M12 1l9.5 5.5v11L12 23l-9.5-5.5v-11z"
_GREY = "#57606a"
_WHITE = 'fill="none" stroke="#fff" stroke-width="1.8"'
_TOKENS: Mapping[str, tuple[str, str]] = {
    "USDT": ("#1a7f5c", "M7 8h10M12 8v9.5M7.5 12c2.5 1.2 6.5 1.2 9 0"),
    "USDC": ("#2160c4", "M8.5 6a7 7 0 0 0 0 12M15.5 6a7 7 0 0 1 0 12M14 9.5h-4v2.5h4v2.5h-4"),
    "NATIVED": ("#6f42c1", "M8.5 17V7l7 10V7"),
}
_CHAINS: Mapping[str, tuple[str, str]] = {
    "ethereum": ("#4b55b8", "M12 5l4.5 7L12 15l-4.5-3zM8 14.5l4 4.5 4-4.5"),
    "bsc": ("#8a6300", "M12 6l3 3-3 3-3-3zM12 13l3 2.5-3 2.5-3-2.5z"),
}


def method_sign(kind: str, label: str) -> str:
    """Return the name of a payment method's icon, by its kind or by words of its label."""
    if kind in _KINDS:
        return _KINDS[kind]
    return next((name for name, pattern in _LABELS if pattern.search(label)), "page")


@lru_cache(maxsize=100)
def draw_method(name: str) -> Markup:
    return _svg(f"<g {_LINES}>{_METHODS[name]}</g>")


@lru_cache(maxsize=100)
def draw_token(symbol: str) -> Markup:
    colour, figure = _TOKENS.get(symbol, (_GREY, ""))
    return _svg(_DISC.format(colour) + _figure(figure, symbol))


@lru_cache(maxsize=100)
def draw_chain(slug: str) -> Markup:
    colour, figure = _CHAINS.get(slug, (_GREY, ""))
    return _svg(_HEXAGON.format(_CORNERS, colour) + _figure(figure, slug))


def _figure(path: str, name: str) -> str:
    if path:
        return f'<path d="{path}" {_WHITE}/>'
    letter = escape(name[:1].upper())
    return (
        '<text x="12" y="16.5" text-anchor="middle" font-size="14" font-weight="600" '
        f'fill="#fff">{letter}</text>'
    )


def _svg(content: str) -> Markup:
    return Markup(f'<svg class="sign" viewBox="0 0 24 24" aria-hidden="true">{content}</svg>')  # noqa: S704 - every part is our own or escaped
