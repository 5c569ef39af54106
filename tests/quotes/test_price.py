"""The price of a payment method."""

from decimal import Decimal
from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from payintent.core.money import format_rate
from payintent.merchants.model import FeeMode, Price
from payintent.quotes.price import PriceRates, make_price


def _quote(
    amount: str,
    currency: str = "USD",
    *,
    fee: str = "0",
    tax: str = "0",
    mode: FeeMode = FeeMode.INCLUSIVE,
    decimals: int = 2,
) -> Price:
    tariff = PriceRates(
        fee_mode=mode, fee_rate=Decimal(fee), tax_rate=Decimal(tax), decimals=decimals
    )
    return make_price(Decimal(amount), currency, tariff)


def test_an_inclusive_fee_is_reported_but_not_added() -> None:
    quote = _quote("49.90", fee="0.029", tax="0.1")
    assert (quote.fee_amount, quote.estimated_tax, quote.total_amount) == ("1.45", "4.99", "54.89")
    assert (quote.amount, quote.fee_rate, quote.currency) == ("49.90", "0.029", "USD")


def test_an_exclusive_fee_is_added() -> None:
    quote = _quote("49.90", fee="0.029", tax="0.1", mode=FeeMode.EXCLUSIVE)
    assert quote.total_amount == "56.34"


def test_amounts_are_rounded_half_up_to_the_currencys_decimals() -> None:
    assert _quote("0.50", fee="0.01").fee_amount == "0.01"  # 0.005
    assert _quote("0.49", fee="0.01").fee_amount == "0"  # 0.0049
    assert _quote("2.50", fee="0.01").fee_amount == "0.03"  # 0.025 is not rounded half to even
    assert _quote("250", "JPY", fee="0.01", decimals=0).fee_amount == "3"


def test_yen_amounts_have_no_decimals() -> None:
    quote = _quote("1000", "JPY", fee="0.029", tax="0.1", mode=FeeMode.EXCLUSIVE, decimals=0)
    texts = (quote.amount, quote.fee_amount, quote.estimated_tax, quote.total_amount)
    assert texts == ("1000", "29", "100", "1129")


def test_zero_amounts_are_formatted_as_a_single_digit() -> None:
    quote = _quote("49.90")
    assert (quote.fee_rate, quote.fee_amount, quote.estimated_tax) == ("0", "0", "0")


def test_token_amounts_have_no_trailing_zeros() -> None:
    quote = _quote("49.90", "USDT", tax="0.1", decimals=6)
    texts = (quote.amount, quote.estimated_tax, quote.total_amount)
    assert texts == ("49.9", "4.99", "54.89")


def test_a_token_amount_is_rounded_up_to_the_tokens_decimals() -> None:
    assert _quote("0.0000001", "USDT", decimals=6).total_amount == "0.000001"


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        *(("0", "0"), ("0.00000000", "0"), ("0.02900000", "0.029")),
        *(("1.00000000", "1"), ("1E-8", "0.00000001")),
    ],
)
def test_a_rate_is_formatted_as_a_plain_decimal(rate: str, text: str) -> None:
    assert format_rate(Decimal(rate)) == text


_rates = st.decimals(min_value=0, max_value=1, places=8)


@given(
    st.decimals(min_value=Decimal("1E-18"), max_value=10**9, places=18),
    _rates,
    _rates,
    st.sampled_from(FeeMode),
    st.sampled_from((0, 2, 6, 18)),
)
@example(  # the product has 36 digits; if it were rounded to 28 first, the fee would be too high
    Decimal("844555212.931985076110872998"),
    Decimal("0.61184224"),
    Decimal(1),
    FeeMode.EXCLUSIVE,
    18,
)
def test_a_quote_is_exact_in_every_digit(
    amount: Decimal, fee: Decimal, tax: Decimal, mode: FeeMode, decimals: int
) -> None:
    currency = "USD" if decimals in (0, 2) else "USDT"
    quote = _quote(str(amount), currency, fee=str(fee), tax=str(tax), mode=mode, decimals=decimals)
    scale = 10**decimals
    base = ceil(Fraction(amount) * scale)

    def half_up(rate: Decimal) -> int:
        return floor(base * Fraction(rate) + Fraction(1, 2))

    total = base + half_up(tax) + (half_up(fee) if mode is FeeMode.EXCLUSIVE else 0)
    assert Fraction(quote.amount) * scale == base
    assert Fraction(quote.fee_amount) * scale == half_up(fee)
    assert Fraction(quote.estimated_tax) * scale == half_up(tax)
    assert Fraction(quote.total_amount) * scale == total
    for text in (quote.amount, quote.fee_amount, quote.estimated_tax, quote.total_amount):
        assert set(text) <= set("0123456789.")
