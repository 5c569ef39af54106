"""Group payment methods for the checkout page and choose their icons."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from typing import Any

from markupsafe import Markup

from payintent.checkout.languages import Language

_CARD_GROUP, _BANK_GROUP, _TOKEN_GROUP = "group_card", "group_bank", "kind_onchain"
# Original artwork; contains no trademarks.
_LINES = 'fill="none" stroke="currentColor" stroke-width="1.6" stroke-linejoin="round"'
_METHODS = {
    "card": '<rect x="2" y="5" width="20" height="14" rx="2.5"/><path d="M2 10h20M6 15h4"/>',
    "bank": '<path d="M3 9.5 12 4l9 5.5zM5.5 10v7M10 10v7M14 10v7M18.5 10v7M3 20h18"/>',
    "store": '<path d="M4 11v9h16v-9M3 9l2-5h14l2 5a3 3 0 0 1-6 0 3 3 0 0 1-6 0 3 3 0 0 1-6 0z"/>',
    "phone": '<rect x="6.5" y="2" width="11" height="20" rx="2.5"/><path d="M11 18.5h2"/>',
    "qr": '<path d="M3 3h7v7H3zM14 3h7v7h-7zM3 14h7v7H3zM14 14h3v3h-3zM21 14v3M17 21h4v-1"/>',
    "page": '<path d="M14 4h6v6M20 4l-9 9M18 14v6H4V6h6"/>',
}
#: Words in a label; the first match wins.
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


@dataclass(frozen=True, slots=True)
class Choice:
    quote: dict[str, Any]
    name: str
    sign: Markup

    @property
    def way(self) -> str:
        return f"{self.quote['payment_method_id']}|{self.quote['currency']}"


@dataclass(frozen=True, slots=True)
class Way:
    name: str
    sign: Markup
    choices: Sequence[Choice]
    note: str | None = None  # translation key of an explanation of the next step

    @property
    def total(self) -> dict[str, Any] | None:
        first = self.choices[0].quote
        totals = {(choice.quote["total_amount"], *_extras(choice.quote)) for choice in self.choices}
        return first if len(totals) == 1 else None


@dataclass(frozen=True, slots=True)
class Group:
    title: str | None  # translation key
    ways: Sequence[Way]


def group_ways(quotes: Iterable[dict[str, Any]], texts: Language) -> list[Group]:
    """Group quotes into cards, bank and other methods, and tokens, in display order.

    The order within a group is unchanged.
    """
    by_group: dict[str, list[dict[str, Any]]] = {_CARD_GROUP: [], _BANK_GROUP: [], _TOKEN_GROUP: []}
    for quote in quotes:
        by_group[_group_of(quote)].append(quote)
    groups: list[Group] = []
    for title, members in by_group.items():
        ways = _token_ways(members) if title == _TOKEN_GROUP else [_way(quote) for quote in members]
        if ways:
            groups.append(_group(title, ways, texts))
    return groups


def sign_of(quote: dict[str, Any]) -> Markup:
    if quote.get("token"):
        return draw_token(quote["token"])
    return draw_method(method_sign(quote["kind"], quote["label"]))


def _group_of(quote: dict[str, Any]) -> str:
    if quote["kind"] == "onchain":
        return _TOKEN_GROUP
    return _CARD_GROUP if method_sign(quote["kind"], quote["label"]) == "card" else _BANK_GROUP


def _group(title: str, ways: list[Way], texts: Language) -> Group:
    """Make a group without notes that would repeat its title or a method's name."""
    has_title = len(ways) > 1
    heading = texts.t(title) if has_title else None
    with_notes = [Way(way.name, way.sign, way.choices, _note(way, texts, heading)) for way in ways]
    return Group(title if has_title else None, with_notes)


def _note(way: Way, texts: Language, heading: str | None) -> str | None:
    kind: str = way.choices[0].quote["kind"]
    if kind == "card" or (kind == "redirect" and heading is not None):
        return None
    text = texts.t(f"kind_{kind}")
    is_repeated = text == heading or text.casefold() == way.name.casefold()
    return None if is_repeated else f"kind_{kind}"


def _way(quote: dict[str, Any]) -> Way:
    sign = sign_of(quote)
    return Way(quote["label"], sign, [Choice(quote, quote["label"], sign)])


def _token_ways(quotes: Iterable[dict[str, Any]]) -> list[Way]:
    by_token: dict[str, list[dict[str, Any]]] = {}
    for quote in quotes:
        by_token.setdefault(quote.get("token") or quote["currency"], []).append(quote)
    return [
        _way(members[0])
        if len(members) == 1
        else Way(token, draw_token(token), [_chain_choice(quote, token) for quote in members])
        for token, members in by_token.items()
    ]


def _chain_choice(quote: dict[str, Any], token: str) -> Choice:
    """Shorten the label to the chain's name: `USDT on Native` becomes `Native`."""
    name = quote["label"].removeprefix(f"{token} on ")
    return Choice(quote, name, draw_chain(quote.get("chain") or ""))


def _extras(quote: dict[str, Any]) -> tuple[str, str, str]:
    return quote["fee_mode"], quote["fee_amount"], quote["estimated_tax"]


def method_sign(kind: str, label: str) -> str:
    """Choose a payment method's icon by its kind, or by words in its label."""
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
