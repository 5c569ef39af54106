"""What a page says of the amount: the total first, and what it is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from payintent.checkout.languages import Language
from payintent.checkout.signs import draw_token
from payintent.domain.payment import PaymentStatus

_CHOSEN = frozenset(
    {
        PaymentStatus.PROCESSING,
        PaymentStatus.PAID,
        PaymentStatus.PARTIALLY_REFUNDED,
        PaymentStatus.REFUNDED,
    }
)


@dataclass(frozen=True, slots=True)
class Bill:
    """A total with its lines; each line is a text's key and an amount in words."""

    amount: str
    currency: str
    lines: Sequence[tuple[str, str]]
    sign: Markup | None = None


def make_bill(view: Mapping[str, Any], texts: Language) -> Bill:
    if "selected" not in view or view["status"] not in _CHOSEN:
        return Bill(view["amount"], view["currency"], [])
    chosen: Mapping[str, Any] = view["selected"]
    currency: str = chosen["currency"]
    parts = price_parts(chosen, texts)
    lines = [("amount", texts.money(chosen["amount"], currency)), *parts] if parts else []
    lines = [*compared_price(chosen, view, texts), *lines]
    sign = draw_token(chosen["token"]) if "token" in chosen else None
    return Bill(chosen["total_amount"], currency, lines, sign)


def compared_price(
    quote: Mapping[str, Any], view: Mapping[str, Any], texts: Language
) -> list[tuple[str, str]]:
    """Return the price as the shop asks it, beside a quote in another currency: in a token."""
    if quote["currency"] == view["currency"]:
        return []
    return [("price", texts.money(view["amount"], view["currency"]))]


def price_parts(quote: Mapping[str, Any], texts: Language) -> list[tuple[str, str]]:
    has_fee = quote["fee_mode"] == "EXCLUSIVE" and quote["fee_amount"] != "0"
    parts = [("fee", quote["fee_amount"])] if has_fee else []
    parts += [("tax", quote["estimated_tax"])] if quote["estimated_tax"] != "0" else []
    return [(key, texts.money(amount, quote["currency"])) for key, amount in parts]
