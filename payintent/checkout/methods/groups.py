"""Group payment methods for the checkout page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from typing import Any

from markupsafe import Markup

from payintent.checkout.languages import Language
from payintent.checkout.methods.icons import (
    choose_group,
    draw_chain_icon,
    draw_quote_icon,
    draw_token_icon,
)
from payintent.checkout.methods.order import MethodPreferences
from payintent.core.method_brands import MethodGroup

_NO_PREFERENCES = MethodPreferences()
_TITLES: Mapping[MethodGroup, str] = {
    MethodGroup.CARD: "group_card",
    MethodGroup.WALLET: "group_wallet",
    MethodGroup.BANK: "group_bank",
    MethodGroup.CASH: "group_cash",
    MethodGroup.OTHER: "group_other",
    MethodGroup.ONCHAIN: "group_onchain",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """A radio button of the payment method form."""

    quote: dict[str, Any]
    name: str
    icon: Markup
    duration: str = ""  # usual time for a transfer on the network
    network_fee: str = ""  # usual fee for a transfer on the network

    @property
    def value(self) -> str:
        return f"{self.quote['payment_method_id']}|{self.quote['currency']}"


@dataclass(frozen=True, slots=True)
class MethodOption:
    """A payment method, or a token with a choice of chains."""

    name: str
    icon: Markup
    choices: Sequence[Choice]
    note: str | None = None  # translation key; the note explains the next step
    is_last_used: bool = False

    @property
    def total(self) -> dict[str, Any] | None:
        """The quote whose total is shown; None if the totals of the choices differ."""
        names = ("total_amount", "fee_mode", "fee_amount", "estimated_tax")
        totals = {tuple(choice.quote[name] for name in names) for choice in self.choices}
        return self.choices[0].quote if len(totals) == 1 else None

    @property
    def card_brands(self) -> Sequence[str]:
        return self.choices[0].quote.get("card_brands", ())


@dataclass(frozen=True, slots=True)
class Group:
    title: str | None  # translation key
    options: Sequence[MethodOption]


def group_methods(
    quotes: Iterable[dict[str, Any]],
    language: Language,
    preferences: MethodPreferences = _NO_PREFERENCES,
) -> list[Group]:
    """Group ordered quotes. The group with the method used last, or used most, comes first.

    A token is listed twice if buyers can pay both from a wallet and by sending it to an address.
    Groups have titles if at least one of them has several methods.
    """
    members: dict[MethodGroup, dict[object, list[dict[str, Any]]]] = {}
    for number, quote in enumerate(quotes):
        group = choose_group(quote["kind"], quote["label"])
        option: object = number
        if group is MethodGroup.ONCHAIN:
            option = (quote.get("token") or quote["currency"], bool(quote.get("is_deposit")))
        members.setdefault(group, {}).setdefault(option, []).append(quote)

    def rank(group: MethodGroup) -> tuple[bool, int, int]:
        group_quotes = [quote for option in members[group].values() for quote in option]
        has_last = any(map(preferences.is_last, group_quotes))
        most_used = max(map(preferences.count_usage, group_quotes))
        return not has_last, -most_used, tuple(MethodGroup).index(group)

    groups = sorted(members, key=rank)
    has_titles = any(len(options) > 1 for options in members.values())
    return [
        _make_group(
            group, list(members[group].values()), language, preferences, has_title=has_titles
        )
        for group in groups
    ]


def _make_group(
    group: MethodGroup,
    members: Sequence[list[dict[str, Any]]],
    language: Language,
    preferences: MethodPreferences,
    *,
    has_title: bool,
) -> Group:
    """Make a group, without notes that would repeat its title or a method's name."""
    title = _TITLES[group] if has_title else None
    heading = language.t(title) if title else None
    options: list[MethodOption] = []
    for quotes in members:
        is_token = group is MethodGroup.ONCHAIN
        option = (_token_option if is_token else _single_option)(quotes, language)
        is_last = preferences.is_last(quotes[0])
        options.append(
            replace(option, note=_note_key(option, language, heading), is_last_used=is_last)
        )
    return Group(title, options)


def _note_key(option: MethodOption, language: Language, heading: str | None) -> str | None:
    kind: str = option.choices[0].quote["kind"]
    if kind == "card" or (kind == "redirect" and heading is not None):
        return None
    if option.choices[0].quote.get("is_deposit"):
        return "way_deposit"
    text = language.t(f"kind_{kind}")
    is_repeated = text == heading or text.casefold() == option.name.casefold()
    return None if is_repeated else f"kind_{kind}"


def _single_option(quotes: list[dict[str, Any]], language: Language) -> MethodOption:
    quote = quotes[0]
    name, icon = quote["name"], draw_quote_icon(quote)
    return MethodOption(name, icon, [_choice(quote, name, icon, language)])


def _token_option(quotes: list[dict[str, Any]], language: Language) -> MethodOption:
    if len(quotes) == 1:
        return _single_option(quotes, language)
    token: str = quotes[0].get("token") or quotes[0]["currency"]
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
