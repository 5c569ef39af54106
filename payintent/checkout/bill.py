"""The total shown on a hosted page, with its breakdown into price, fee and tax."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from payintent.checkout.languages import Language
from payintent.checkout.ways import draw_token
from payintent.payments.model import PaymentStatus

_WITH_METHOD = frozenset(
    {
        PaymentStatus.PROCESSING,
        PaymentStatus.PAID,
        PaymentStatus.PARTIALLY_REFUNDED,
        PaymentStatus.REFUNDED,
    }
)


@dataclass(frozen=True, slots=True)
class Bill:
    """A total and its breakdown; each line is a translation key and a formatted amount."""

    amount: str
    currency: str
    lines: Sequence[tuple[str, str]]
    sign: Markup | None = None


def make_bill(view: Mapping[str, Any], texts: Language) -> Bill:
    if "selected" not in view or view["status"] not in _WITH_METHOD:
        return Bill(view["amount"], view["currency"], [])
    quote: Mapping[str, Any] = view["selected"]
    currency: str = quote["currency"]
    parts = price_parts(quote, texts)
    lines = [("amount", texts.money(quote["amount"], currency)), *parts] if parts else []
    lines = [*compared_price(quote, view, texts), *lines]
    sign = draw_token(quote["token"]) if "token" in quote else None
    return Bill(quote["total_amount"], currency, lines, sign)


def compared_price(
    quote: Mapping[str, Any], view: Mapping[str, Any], texts: Language
) -> list[tuple[str, str]]:
    """Return a line with the shop's price if the quote is in another currency, such as a token."""
    if quote["currency"] == view["currency"]:
        return []
    return [("price", texts.money(view["amount"], view["currency"]))]


def price_parts(quote: Mapping[str, Any], texts: Language) -> list[tuple[str, str]]:
    has_fee = quote["fee_mode"] == "EXCLUSIVE" and quote["fee_amount"] != "0"
    parts = [("fee", quote["fee_amount"])] if has_fee else []
    parts += [("tax", quote["estimated_tax"])] if quote["estimated_tax"] != "0" else []
    return [(key, texts.money(amount, quote["currency"])) for key, amount in parts]
