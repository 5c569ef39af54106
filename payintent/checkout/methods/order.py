"""Order payment methods by how likely the buyer is to choose them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from payintent.checkout.methods.icons import choose_icon
from payintent.core.method_brands import find_brand

_KEY = re.compile(r"[A-Za-z0-9._-]{1,40}", re.ASCII)
_FEE_SHARE_MAX = Decimal("0.01")
_FEE_DIFFERENCE_MAX = Decimal("0.25")  # US dollars


@dataclass(frozen=True, slots=True)
class MethodPreferences:
    """The buyer's last method, the configured positions, and how often buyers use each method."""

    last_key: str | None = None
    positions: Mapping[int, int] = field(default_factory=dict[int, int])  # by method
    usage: Mapping[int, int] = field(default_factory=dict[int, int])  # recent payments by method

    def is_last(self, quote: Mapping[str, Any]) -> bool:
        return self.last_key is not None and make_method_key(quote) == self.last_key

    def count_usage(self, quote: Mapping[str, Any]) -> int:
        return self.usage.get(quote["payment_method_id"], 0)


def make_method_key(quote: Mapping[str, Any]) -> str:
    """Return a name for the kind of method. The name is the same for every merchant."""
    if quote["kind"] == "onchain":
        way = "-address" if quote.get("is_deposit") else ""
        return f"{quote.get('token') or quote['currency']}.{quote.get('chain', '')}{way}"
    brand = find_brand(quote["label"]) if quote["kind"] != "card" else None
    return brand.code if brand else choose_icon(quote["kind"], quote["label"])


def parse_method_key(text: str | None) -> str | None:
    return text if text is not None and _KEY.fullmatch(text) else None


def order_quotes(
    quotes: Sequence[dict[str, Any]], preferences: MethodPreferences
) -> list[dict[str, Any]]:
    """Order quotes by position, then by usage, and each token's networks by speed and cost.

    The method that the buyer used last comes first.
    """

    def rank(quote: dict[str, Any]) -> tuple[int, int]:
        position = preferences.positions.get(quote["payment_method_id"], 0)
        return position, -preferences.count_usage(quote)

    ordered = fastest_affordable_first(sorted(quotes, key=rank))
    return sorted(ordered, key=lambda quote: not preferences.is_last(quote))


def fastest_affordable_first(quotes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Order each token's quotes: affordable networks by duration, then the others by cost.

    Other quotes keep their positions.
    """
    by_token: dict[str, list[dict[str, Any]]] = {}
    for quote in quotes:
        if quote["kind"] == "onchain":
            by_token.setdefault(quote["currency"], []).append(quote)
    ordered = {token: iter(_order_networks(members)) for token, members in by_token.items()}
    return [
        next(ordered[quote["currency"]]) if quote["kind"] == "onchain" else quote
        for quote in quotes
    ]


def _order_networks(quotes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Order a token's quotes.

    A network is affordable if its cost exceeds the lowest cost by at most 0.25 US dollars or 1 %,
    whichever is more.
    """
    cheapest = min(map(_cost, quotes))
    affordable_max = cheapest + max(cheapest * _FEE_SHARE_MAX, _FEE_DIFFERENCE_MAX)

    def rank(quote: Mapping[str, Any]) -> tuple[bool, Decimal, Decimal]:
        cost, duration = _cost(quote), Decimal(quote.get("typical_s", 0))
        if cost <= affordable_max:
            return False, duration, cost
        return True, cost, duration

    return sorted(quotes, key=rank)


def _cost(quote: Mapping[str, Any]) -> Decimal:
    """Return the cost in tokens, including the network fee. A token is worth one US dollar."""
    return Decimal(quote["total_amount"]) + quote.get("network_fee", 0)
