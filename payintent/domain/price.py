"""The amounts of a quote: amount, fee, tax and total."""

from dataclasses import dataclass
from decimal import Decimal, localcontext
from enum import StrEnum

from payintent.domain.currencies import TENDER
from payintent.domain.money import EXACT, format_amount, round_half_up, round_up


class FeeMode(StrEnum):
    """Who bears the fee: the merchant (inside the amount), or the buyer (on top of it)."""

    INCLUSIVE = "INCLUSIVE"
    EXCLUSIVE = "EXCLUSIVE"


class TaxManager(StrEnum):
    """Who manages tax: the merchant alone, or this service by the operator's rates."""

    NONE = "NONE"
    SERVICE = "SERVICE"


class TaxCountry(StrEnum):
    SELECTION = "selection"  # the buyer's chosen country; without one, the merchant's
    MERCHANT = "merchant"  # the merchant's default country, whatever the buyer selects


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRates:
    fee_mode: FeeMode
    fee_rate: Decimal  # 0.029 is 2.9 %
    tax_rate: Decimal
    decimals: int  # of the currency or token that is paid


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of one payment by one method; every text is a plain decimal."""

    currency: str
    amount: str
    fee_mode: FeeMode
    fee_rate: str
    fee_amount: str
    estimated_tax: str
    total_amount: str


def make_price(amount: Decimal, currency: str, tariff: PriceRates) -> Price:
    """Compute a price: `total = amount + tax`, and the fee where the buyer bears it.

    The amount of a pegged token is the fiat amount one to one, rounded up to the token's decimals.
    """
    base = round_up(amount, tariff.decimals)
    with localcontext(EXACT):
        fee = round_half_up(base * tariff.fee_rate, tariff.decimals)
        tax = round_half_up(base * tariff.tax_rate, tariff.decimals)
        total = base + tax + (fee if tariff.fee_mode is FeeMode.EXCLUSIVE else Decimal(0))
    crypto = TENDER[currency].crypto

    def shown(value: Decimal) -> str:
        return format_amount(value, tariff.decimals, trim=crypto)

    return Price(
        currency=currency,
        amount=shown(base),
        fee_mode=tariff.fee_mode,
        fee_rate=format_rate(tariff.fee_rate),
        fee_amount=shown(fee),
        estimated_tax=shown(tax),
        total_amount=shown(total),
    )


def format_rate(rate: Decimal) -> str:
    """Format a rate without trailing zeros: `0.029`, `0`."""
    return "0" if rate == 0 else format(rate.normalize(), "f")
