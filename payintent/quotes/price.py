"""The price of a quote: amount, fee, tax and total."""

from dataclasses import dataclass
from decimal import Decimal, localcontext

from payintent.core.money import (
    EXACT,
    TENDER,
    format_amount,
    format_rate,
    round_half_up,
    round_up,
)
from payintent.merchants.model import FeeMode, Price


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRates:
    fee_mode: FeeMode
    fee_rate: Decimal  # 0.029 is 2.9 %
    tax_rate: Decimal
    decimals: int  # of the currency or token


def make_price(amount: Decimal, currency: str, rates: PriceRates) -> Price:
    """Compute a price. The total is the amount plus tax, plus the fee if the fee is exclusive.

    The amount in a pegged token is the fiat amount, rounded up to the token's decimals.
    """
    base = round_up(amount, rates.decimals)
    with localcontext(EXACT):
        fee = round_half_up(base * rates.fee_rate, rates.decimals)
        tax = round_half_up(base * rates.tax_rate, rates.decimals)
        total = base + tax + (fee if rates.fee_mode is FeeMode.EXCLUSIVE else Decimal(0))
    is_crypto = TENDER[currency].is_crypto

    def to_text(value: Decimal) -> str:
        return format_amount(value, rates.decimals, trim=is_crypto)

    return Price(
        currency=currency,
        amount=to_text(base),
        fee_mode=rates.fee_mode,
        fee_rate=format_rate(rates.fee_rate),
        fee_amount=to_text(fee),
        estimated_tax=to_text(tax),
        total_amount=to_text(total),
    )
