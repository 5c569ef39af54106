"""Group payment methods for the checkout page and choose their icons."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from html import escape
from typing import Any

from markupsafe import Markup

from payintent.checkout.languages import Language

# Original artwork; contains no trademarks.
_OUTLINE = 'fill="none" stroke="currentColor" stroke-width="1.6" stroke-linejoin="round"'
_METHOD_PATHS = {
    "card": '<rect x="2" y="5" width="20" height="14" rx="2.5"/><path d="M2 10h20M6 15h4"/>',
    "bank": '<path d="M3 9.5 12 4l9 5.5zM5.5 10v7M10 10v7M14 10v7M18.5 10v7M3 20h18"/>',
    "store": '<path d="M4 11v9h16v-9M3 9l2-5h14l2 5a3 3 0 0 1-6 0 3 3 0 0 1-6 0 3 3 0 0 1-6 0z"/>',
    "phone": '<rect x="6.5" y="2" width="11" height="20" rx="2.5"/><path d="M11 18.5h2"/>',
    "qr": '<path d="M3 3h7v7H3zM14 3h7v7h-7zM3 14h7v7H3zM14 14h3v3h-3zM21 14v3M17 21h4v-1"/>',
    "page": '<path d="M14 4h6v6M20 4l-9 9M18 14v6H4V6h6"/>',
}
#: Words in a label; the first match wins.
_LABEL_PATTERNS = (
    ("card", re.compile(r"\b(cards?|credit|debit)\b", re.IGNORECASE)),
    ("store", re.compile(r"\b(stores?|konbini|counter|cash|cvs)\b", re.IGNORECASE)),
    ("phone", re.compile(r"\b(mobile|app|wallet|e-?wallet)\b|(?<=\w)pay\b", re.IGNORECASE)),
    ("bank", re.compile(r"\b(bank|banking|transfer|account|atm)\b", re.IGNORECASE)),
)
_KIND_ICONS = {"card": "card", "qr": "qr"}

_DISC, _HEXAGON = '<circle cx="12" cy="12" r="11" fill="{}"/>', '<path d="{}" fill="{}"/>'
_CORNERS = "M12 1l9.5 5.5v11L12 23l-9.5-5.5v-11z"
_GREY = "#57606a"
_WHITE = 'fill="none" stroke="#fff" stroke-width="1.8"'
_TOKEN_FIGURES: Mapping[str, tuple[str, str]] = {
    "USDT": ("#1a7f5c", "M7 8h10M12 8v9.5M7.5 12c2.5 1.2 6.5 1.2 9 0"),
    "USDC": ("#2160c4", "M8.5 6a7 7 0 0 0 0 12M15.5 6a7 7 0 0 1 0 12M14 9.5h-4v2.5h4v2.5h-4"),
    "NATIVED": ("#6f42c1", "M8.5 17V7l7 10V7"),
}
_CHAIN_FIGURES: Mapping[str, tuple[str, str]] = {
    "ethereum": ("#4b55b8", "M12 5l4.5 7L12 15l-4.5-3zM8 14.5l4 4.5 4-4.5"),
    "bsc": ("#8a6300", "M12 6l3 3-3 3-3-3zM12 13l3 2.5-3 2.5-3-2.5z"),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """A radio button of the payment method form."""

    quote: dict[str, Any]
    name: str
    icon: Markup
    duration: str = ""  # how long the network usually takes
    network_fee: str = ""  # how much the network usually costs

    @property
    def value(self) -> str:
        return f"{self.quote['payment_method_id']}|{self.quote['currency']}"


@dataclass(frozen=True, slots=True)
class MethodOption:
    """A payment method, or a token with a choice of chains."""

    name: str
    icon: Markup
    choices: Sequence[Choice]
    note: str | None = None  # translation key of an explanation of the next step

    @property
    def total(self) -> dict[str, Any] | None:
        """The quote whose total to show; None if the totals of the choices differ."""
        names = ("total_amount", "fee_mode", "fee_amount", "estimated_tax")
        totals = {tuple(choice.quote[name] for name in names) for choice in self.choices}
        return self.choices[0].quote if len(totals) == 1 else None


@dataclass(frozen=True, slots=True)
class Group:
    title: str | None  # translation key
    options: Sequence[MethodOption]


def group_methods(quotes: Iterable[dict[str, Any]], language: Language) -> list[Group]:
    """Group quotes into cards, bank and other methods, and tokens, in display order.

    A token that can be paid in both ways is listed once for each. The order within a group is
    unchanged.
    """
    cards, others = list[MethodOption](), list[MethodOption]()
    tokens: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for quote in quotes:
        if quote["kind"] == "onchain":
            token, is_deposit = quote.get("token") or quote["currency"], quote.get("is_deposit")
            tokens.setdefault((token, bool(is_deposit)), []).append(quote)
        elif choose_icon(quote["kind"], quote["label"]) == "card":
            cards.append(_single_option(quote, language))
        else:
            others.append(_single_option(quote, language))
    by_token = [_token_option(token, members, language) for (token, _), members in tokens.items()]
    groups = {"group_card": cards, "group_bank": others, "group_onchain": by_token}
    return [_group(title, options, language) for title, options in groups.items() if options]


def cheapest_first(quotes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Order each token's quotes by total and network fee, then by duration.

    Other quotes keep their places.
    """
    by_token: dict[str, list[dict[str, Any]]] = {}
    for quote in quotes:
        if quote["kind"] == "onchain":
            by_token.setdefault(quote["currency"], []).append(quote)
    ordered = {token: iter(sorted(members, key=_cost)) for token, members in by_token.items()}
    return [
        next(ordered[quote["currency"]]) if quote["kind"] == "onchain" else quote
        for quote in quotes
    ]


def _cost(quote: Mapping[str, Any]) -> tuple[Decimal, int]:
    """Return the cost in tokens, which are worth a US dollar, and the duration."""
    return Decimal(quote["total_amount"]) + quote.get("network_fee", 0), quote.get("typical_s", 0)


def draw_quote_icon(quote: dict[str, Any]) -> Markup:
    if quote.get("token"):
        return draw_token_icon(quote["token"])
    return draw_method_icon(choose_icon(quote["kind"], quote["label"]))


def _group(title: str, options: list[MethodOption], language: Language) -> Group:
    """Make a group. Notes that would repeat its title or the method's name are omitted."""
    has_title = len(options) > 1
    heading = language.t(title) if has_title else None
    with_notes = [replace(option, note=_note_key(option, language, heading)) for option in options]
    return Group(title if has_title else None, with_notes)


def _note_key(option: MethodOption, language: Language, heading: str | None) -> str | None:
    kind: str = option.choices[0].quote["kind"]
    if kind == "card" or (kind == "redirect" and heading is not None):
        return None
    if option.choices[0].quote.get("is_deposit"):
        return "way_deposit"
    text = language.t(f"kind_{kind}")
    is_repeated = text == heading or text.casefold() == option.name.casefold()
    return None if is_repeated else f"kind_{kind}"


def _single_option(quote: dict[str, Any], language: Language) -> MethodOption:
    name, icon = quote["name"], draw_quote_icon(quote)
    return MethodOption(name, icon, [_choice(quote, name, icon, language)])


def _token_option(token: str, quotes: list[dict[str, Any]], language: Language) -> MethodOption:
    if len(quotes) == 1:
        return _single_option(quotes[0], language)
    choices = [_chain_choice(quote, language) for quote in quotes]
    return MethodOption(token, draw_token_icon(token), choices)


def _chain_choice(quote: dict[str, Any], language: Language) -> Choice:
    icon = draw_chain_icon(quote.get("chain") or "")
    return _choice(quote, quote["chain_name"], icon, language)


def _choice(quote: dict[str, Any], name: str, icon: Markup, language: Language) -> Choice:
    duration = language.duration(quote["typical_s"]) if "typical_s" in quote else ""
    return Choice(quote, name, icon, duration, _describe_network_fee(quote, language))


def _describe_network_fee(quote: Mapping[str, Any], language: Language) -> str:
    fee: Decimal = quote.get("network_fee", Decimal(0))
    if not fee:
        return ""
    cents = fee.quantize(Decimal("0.01"), ROUND_CEILING)
    return language.t("network_fee", amount=language.money(f"{cents}", "USD"))


def choose_icon(kind: str, label: str) -> str:
    """Choose a payment method's icon by its kind, or by words in its label."""
    if kind in _KIND_ICONS:
        return _KIND_ICONS[kind]
    return next((name for name, pattern in _LABEL_PATTERNS if pattern.search(label)), "page")


@lru_cache(maxsize=100)
def draw_method_icon(name: str) -> Markup:
    return _svg(f"<g {_OUTLINE}>{_METHOD_PATHS[name]}</g>")


@lru_cache(maxsize=100)
def draw_token_icon(symbol: str) -> Markup:
    colour, figure = _TOKEN_FIGURES.get(symbol, (_GREY, ""))
    return _svg(_DISC.format(colour) + _draw_figure(figure, symbol))


@lru_cache(maxsize=100)
def draw_chain_icon(slug: str) -> Markup:
    colour, figure = _CHAIN_FIGURES.get(slug, (_GREY, ""))
    return _svg(_HEXAGON.format(_CORNERS, colour) + _draw_figure(figure, slug))


def _draw_figure(path: str, name: str) -> str:
    if path:
        return f'<path d="{path}" {_WHITE}/>'
    letter = escape(name[:1].upper())
    return (
        '<text x="12" y="16.5" text-anchor="middle" font-size="14" font-weight="600" '
        f'fill="#fff">{letter}</text>'
    )


def _svg(content: str) -> Markup:
    return Markup(f'<svg class="sign" viewBox="0 0 24 24" aria-hidden="true">{content}</svg>')  # noqa: S704 - every part is our own or escaped
