"""Icons of payment methods, tokens and chains.

All drawings are original. A method with a brand has a tile with the brand's initials instead of its
logo, because the brand owners do not allow their logos in other software.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from html import escape
from typing import Any

from markupsafe import Markup

from payintent.core.method_brands import BRANDS_BY_CODE, MethodGroup, find_brand

_OUTLINE = 'fill="none" stroke="currentColor" stroke-width="1.6" stroke-linejoin="round"'
_METHOD_PATHS = {
    "card": '<rect x="2" y="5" width="20" height="14" rx="2.5"/><path d="M2 10h20M6 15h4"/>',
    "bank": '<path d="M3 9.5 12 4l9 5.5zM5.5 10v7M10 10v7M14 10v7M18.5 10v7M3 20h18"/>',
    "store": '<path d="M4 11v9h16v-9M3 9l2-5h14l2 5a3 3 0 0 1-6 0 3 3 0 0 1-6 0 3 3 0 0 1-6 0z"/>',
    "phone": '<rect x="6.5" y="2" width="11" height="20" rx="2.5"/><path d="M11 18.5h2"/>',
    "qr": '<path d="M3 3h7v7H3zM14 3h7v7h-7zM3 14h7v7H3zM14 14h3v3h-3zM21 14v3M17 21h4v-1"/>',
    "page": '<path d="M14 4h6v6M20 4l-9 9M18 14v6H4V6h6"/>',
}
_BANK_WORDS = re.compile(r"\b(bank|banking|transfer|account|atm)\b", re.IGNORECASE)
#: Words in a label; the first match wins.
_LABEL_PATTERNS = (
    ("card", re.compile(r"\b(cards?|credit|debit)\b", re.IGNORECASE)),
    ("store", re.compile(r"\b(stores?|konbini|counter|cash|cvs)\b", re.IGNORECASE)),
    ("phone", re.compile(r"\b(mobile|app|wallet|e-?wallet)\b|(?<=\w)pay\b", re.IGNORECASE)),
    ("bank", _BANK_WORDS),
)
_KIND_ICONS = {"card": "card", "qr": "qr"}
_ICON_GROUPS: Mapping[str, MethodGroup] = {
    "card": MethodGroup.CARD,
    "bank": MethodGroup.BANK,
    "store": MethodGroup.CASH,
    "phone": MethodGroup.WALLET,
    "qr": MethodGroup.WALLET,
    "page": MethodGroup.OTHER,
}
#: The tile of each brand: its colour, dark enough for white letters, and the letters.
_BRAND_TILES: Mapping[str, tuple[str, str]] = {
    "promptpay": ("#1d3c6e", "PP"),
    "truemoney": ("#b8470b", "TM"),
    "gcash": ("#0a5fc4", "G"),
    "maya": ("#0b6e4f", "M"),
    "qris": ("#9c1c2b", "QR"),
    "gopay": ("#00708a", "Go"),
    "ovo": ("#4c2a86", "O"),
    "dana": ("#1667b7", "D"),
    "shopeepay": ("#b93a1c", "S"),
    "grabpay": ("#00703a", "Gr"),
    "linepay": ("#047a3c", "L"),
    "paypay": ("#b3203a", "P"),
    "jkopay": ("#a32a1b", "JK"),
    "paynow": ("#7a1e6b", "PN"),
    "applepay": ("#2b2f33", "A"),
    "googlepay": ("#3a5bb0", "G"),
    "alipay": ("#0f62b5", "A"),
    "wechatpay": ("#0d7437", "W"),
    "paypal": ("#1f3f8f", "P"),
    "konbini": ("#7a4a00", "K"),
}
_LETTER_SIZES = {1: 14, 2: 11}

_DISC, _HEXAGON = '<circle cx="12" cy="12" r="11" fill="{}"/>', '<path d="{}" fill="{}"/>'
_TILE = '<rect width="24" height="24" rx="6" fill="{}"/>'
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


def choose_icon(kind: str, label: str) -> str:
    """Choose the icon for a method without a brand by its kind, or by the words in its label."""
    if kind in _KIND_ICONS:
        return _KIND_ICONS[kind]
    return next((name for name, pattern in _LABEL_PATTERNS if pattern.search(label)), "page")


def choose_group(kind: str, label: str) -> MethodGroup:
    if kind == "onchain":
        return MethodGroup.ONCHAIN
    brand = find_brand(label)
    if brand is not None and kind != "card":
        return brand.group
    icon = choose_icon(kind, label)
    is_bank_app = icon == "phone" and _BANK_WORDS.search(label)
    return MethodGroup.BANK if is_bank_app else _ICON_GROUPS[icon]


def draw_quote_icon(quote: Mapping[str, Any]) -> Markup:
    if quote.get("token"):
        return draw_token_icon(quote["token"])
    brand = find_brand(quote["label"])
    if brand is not None and quote["kind"] != "card":
        return draw_brand_icon(brand.code)
    return draw_method_icon(choose_icon(quote["kind"], quote["label"]))


@lru_cache(maxsize=100)
def draw_method_icon(name: str) -> Markup:
    return _svg(f"<g {_OUTLINE}>{_METHOD_PATHS[name]}</g>")


@lru_cache(maxsize=100)
def draw_brand_icon(code: str) -> Markup:
    colour, letters = _BRAND_TILES.get(code) or (_GREY, BRANDS_BY_CODE[code].name[:1])
    return _svg(_TILE.format(colour) + _draw_letters(letters))


@lru_cache(maxsize=100)
def draw_token_icon(symbol: str) -> Markup:
    colour, figure = _TOKEN_FIGURES.get(symbol, (_GREY, ""))
    return _svg(_DISC.format(colour) + _draw_figure(figure, symbol))


@lru_cache(maxsize=100)
def draw_chain_icon(slug: str) -> Markup:
    colour, figure = _CHAIN_FIGURES.get(slug, (_GREY, ""))
    return _svg(_HEXAGON.format(_CORNERS, colour) + _draw_figure(figure, slug))


def _draw_figure(path: str, name: str) -> str:
    return f'<path d="{path}" {_WHITE}/>' if path else _draw_letters(name[:1].upper())


def _draw_letters(letters: str) -> str:
    size = _LETTER_SIZES[len(letters)] if letters else 0
    return (
        f'<text x="12" y="16.5" text-anchor="middle" font-size="{size}" font-weight="600" '
        f'fill="#fff">{escape(letters)}</text>'
    )


def _svg(content: str) -> Markup:
    return Markup(f'<svg class="sign" viewBox="0 0 24 24" aria-hidden="true">{content}</svg>')  # noqa: S704 - every part is our own or escaped
