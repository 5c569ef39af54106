"""Payment methods as the page lists them: in groups, with icons, a token's chains together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from payintent.checkout.languages import Language
from payintent.checkout.signs import draw_chain, draw_method, draw_token, method_sign

_CARDS, _BANKS, _TOKENS = "group_card", "group_bank", "kind_onchain"


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
    note: str | None = None  # the key of a text that explains the next step

    @property
    def total(self) -> dict[str, Any] | None:
        first = self.choices[0].quote
        totals = {(choice.quote["total_amount"], *_extras(choice.quote)) for choice in self.choices}
        return first if len(totals) == 1 else None


@dataclass(frozen=True, slots=True)
class Group:
    title: str | None  # the key of a text
    ways: Sequence[Way]


def group_ways(quotes: Iterable[dict[str, Any]], texts: Language) -> list[Group]:
    """Group quotes into cards, banks and similar, and tokens; the order in a group is kept."""
    by_group: dict[str, list[dict[str, Any]]] = {_CARDS: [], _BANKS: [], _TOKENS: []}
    for quote in quotes:
        by_group[_group_of(quote)].append(quote)
    groups: list[Group] = []
    for title, members in by_group.items():
        ways = _token_ways(members) if title == _TOKENS else [_way(quote) for quote in members]
        if ways:
            groups.append(_group(title, ways, texts))
    return groups


def sign_of(quote: dict[str, Any]) -> Markup:
    if quote.get("token"):
        return draw_token(quote["token"])
    return draw_method(method_sign(quote["kind"], quote["label"]))


def _group_of(quote: dict[str, Any]) -> str:
    if quote["kind"] == "onchain":
        return _TOKENS
    return _CARDS if method_sign(quote["kind"], quote["label"]) == "card" else _BANKS


def _group(title: str, ways: list[Way], texts: Language) -> Group:
    """Make a group; notes that repeat the title or the name of a method are left out."""
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
    """Name a choice by its label without the token: `USDT on Native` becomes `Native`."""
    name = quote["label"].removeprefix(f"{token} on ")
    return Choice(quote, name, draw_chain(quote.get("chain") or ""))


def _extras(quote: dict[str, Any]) -> tuple[str, str, str]:
    return quote["fee_mode"], quote["fee_amount"], quote["estimated_tax"]
