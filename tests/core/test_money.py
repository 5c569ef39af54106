"""Amounts as text, as `Decimal` and in smallest units."""

from contextlib import suppress
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payintent.core.errors import ErrorCode, RefusedError
from payintent.core.money import (
    CURRENCIES,
    format_amount,
    format_display_amount,
    format_display_number,
    parse_amount,
    round_half_up,
    round_up,
    to_smallest_unit,
)

LOWEST, HIGHEST = Decimal(0), Decimal(10) ** 9
DECIMALS = {"USD": 2, "THB": 2, "JPY": 0, "TWD": 2, "IDR": 2, "PHP": 2, "USDT": 18, "NATIVED": 18}


def _refusal(raw: object, currency: str = "USD", lowest: Decimal = LOWEST) -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        parse_amount(raw, currency, lowest, HIGHEST)
    assert refused.value.code is ErrorCode.INVALID_AMOUNT
    assert "amount" in refused.value.message
    return refused.value


@pytest.mark.parametrize(
    "raw",
    [
        *("", " ", "1 ", " 1", "1\n", "\t1", "1.", ".5", ".", "-", "-.5", "1..2", "1.2.3", "1,5"),
        *("1e2", "1E2", "1e-2", "+1", "--1", "01", "00", "-01", "00.5", "1_000", "0x10", "$1"),
        *("NaN", "nan", "sNaN", "Infinity", "-Infinity", "inf", "null", "true"),
        *("١٢", "१", "１", "1.５", "߁", "−1", "1\u066b5", "1\x00", "\ufeff1"),
        *(1, 1.5, 0, True, None, [], {}, ["1"], Decimal(1), b"1"),
    ],
)
def test_an_amount_that_is_not_plain_ascii_decimal_text_is_malformed(raw: object) -> None:
    assert _refusal(raw).is_malformed


@pytest.mark.parametrize(
    ("raw", "currency"),
    [
        *(("0", "USD"), ("0.00", "USD"), ("-0", "USD"), ("-0.00", "USD"), ("0", "JPY")),
        *(("-1", "USD"), ("-0.01", "USD"), ("-1590.00", "THB")),
        *(("1.001", "USD"), ("1.000", "USD"), ("0.0000000000000000001", "USDT")),
        *(("100.0", "JPY"), ("100.5", "JPY"), ("1.00", "JPY")),
        *(("1000000000.01", "USD"), ("1000000001", "JPY"), ("1" + "0" * 400, "USD")),
        ("0." + "0" * 400 + "1", "USDT"),
    ],
)
def test_a_plain_decimal_with_a_rejected_value_is_not_malformed(raw: str, currency: str) -> None:
    assert not _refusal(raw, currency).is_malformed


@pytest.mark.parametrize(
    ("raw", "currency"),
    [
        *(("1", "USD"), ("1.5", "USD"), ("0.01", "USD"), ("1590.00", "THB"), ("100", "JPY")),
        *(("1000000000", "USD"), ("1000000000.00", "USD"), ("1000000000", "JPY")),
        *(("0.000000000000000001", "USDT"), ("999999999.999999999999999999", "NATIVED")),
    ],
)
def test_a_valid_amount_is_parsed_exactly(raw: str, currency: str) -> None:
    assert parse_amount(raw, currency, LOWEST, HIGHEST) == Decimal(raw)


def test_the_configured_bounds_are_inclusive() -> None:
    assert parse_amount("5.00", "USD", Decimal(5), Decimal(5)) == 5
    assert not _refusal("4.99", lowest=Decimal(5)).is_malformed


@given(st.text(max_size=40))
def test_only_ascii_digits_with_at_most_one_point_are_parsed(raw: str) -> None:
    with suppress(RefusedError):
        value = parse_amount(raw, "USDT", LOWEST, HIGHEST)
        assert set(raw) <= set("0123456789.")
        assert format(value, "f") == raw


@given(
    st.sampled_from(sorted(DECIMALS)),
    st.integers(min_value=1, max_value=10**27),
    st.integers(min_value=0, max_value=18),
)
def test_amounts_convert_to_smallest_units_and_back(currency: str, number: int, used: int) -> None:
    decimals = DECIMALS[currency]
    used = min(used, decimals)
    digits = str(number % 10 ** (9 + used) or 1).rjust(used + 1, "0")
    whole, fraction = digits[: len(digits) - used], digits[len(digits) - used :]
    raw = f"{whole}.{fraction}" if used else whole
    value = parse_amount(raw, currency, LOWEST, HIGHEST)
    count = to_smallest_unit(value, decimals)
    assert count == Fraction(raw) * 10**decimals
    assert Decimal(count).scaleb(-decimals) == value
    assert Decimal(format_amount(value, decimals)) == value
    assert Decimal(format_amount(value, decimals, trim=True)) == value


@pytest.mark.parametrize("code", sorted(DECIMALS))
def test_each_currency_has_the_expected_number_of_decimals(code: str) -> None:
    assert CURRENCIES[code].amount_decimals == DECIMALS[code]


@pytest.mark.parametrize(
    ("value", "decimals", "trim", "text"),
    [
        *(("1590", 2, False, "1590.00"), ("1590.5", 2, False, "1590.50"), ("100", 0, False, "100")),
        *(("0", 2, False, "0"), ("0.00", 2, False, "0"), ("0E-18", 18, True, "0")),
        *(("1.500000", 6, True, "1.5"), ("1.000000", 6, True, "1"), ("100", 18, True, "100")),
        *(("1E+2", 0, False, "100"), ("1E+2", 0, True, "100")),
        ("1E-18", 18, True, "0." + "0" * 17 + "1"),
    ],
)
def test_amounts_are_formatted_without_an_exponent_and_zero_is_a_single_digit(
    value: str, decimals: int, trim: bool, text: str
) -> None:
    assert format_amount(Decimal(value), decimals, trim=trim) == text


@given(st.decimals(min_value=0, max_value=10**12, places=30), st.integers(0, 18))
def test_rounding_is_exact_for_any_amount(value: Decimal, decimals: int) -> None:
    exact, unit = Fraction(value), Fraction(1, 10**decimals)
    half_up = Fraction(round_half_up(value, decimals))
    assert half_up % unit == 0
    assert half_up - unit / 2 <= exact < half_up + unit / 2
    up = Fraction(round_up(value, decimals))
    assert up % unit == 0
    assert exact <= up < exact + unit


def test_amounts_finer_than_the_smallest_unit_are_not_converted() -> None:
    assert to_smallest_unit(Decimal("1.001"), 2) is None
    assert to_smallest_unit(Decimal("0.0000001"), 6) is None
    assert to_smallest_unit(Decimal("1.000"), 2) == 100
    assert to_smallest_unit(
        Decimal("123456789012345678901234567890.123456789012345678"), 18
    ) == int("123456789012345678901234567890123456789012345678")


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        ("1590", "THB", "1,590.00 THB"),
        ("1590.5", "THB", "1,590.50 THB"),
        ("-1234567.89", "USD", "-1,234,567.89 USD"),
        ("0", "THB", "0.00 THB"),
        ("1500000", "JPY", "1,500,000 JPY"),
        ("1234.5", "USDT", "1,234.5 USDT"),
        ("1000", "NATIVED", "1,000 NATIVED"),
        ("1234", "XXX", "1,234 XXX"),
    ],
)
def test_displayed_amounts_have_separators_and_the_currencys_decimals(
    amount: str, currency: str, text: str
) -> None:
    assert format_display_amount(amount, currency) == text
    assert format_display_number(amount, currency) == text.partition(" ")[0]
