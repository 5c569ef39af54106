import pytest
from hypothesis import given
from hypothesis import strategies as st

from payintent.gateways.twoc2p.messages import (
    DECIMALS,
    format_action_amount,
    format_order_amount,
    parse_order_amount,
)


@pytest.mark.parametrize(
    ("minor", "currency", "ordered", "refunded"),
    [
        (159_000, "THB", "1590.00", "1590.00"),
        (1, "USD", "0.01", "0.01"),
        (100_005, "PHP", "1000.05", "1000.05"),
        (2_500, "JPY", "2500", "2500.00"),
        (1_500_000, "IDR", "15000", "15000.00"),
    ],
)
def test_amounts_are_formatted_as_documented(
    minor: int, currency: str, ordered: str, refunded: str
) -> None:
    assert format_order_amount(minor, currency) == ordered
    assert format_action_amount(minor, currency) == refunded
    assert parse_order_amount(ordered, currency) == parse_order_amount(refunded, currency) == minor


def test_a_fraction_of_a_rupiah_cannot_be_formatted() -> None:
    for write in (format_order_amount, format_action_amount):
        with pytest.raises(ValueError, match="decimals"):
            write(1_500_050, "IDR")


@pytest.mark.parametrize(
    ("text", "currency", "minor"),
    [
        ("000000002500.90000", "THB", 250_090),  # padded as in the documentation
        ("230.87", "THB", 23_087),
        ("1000", "USD", 100_000),
        ("1000.0", "USD", 100_000),
        ("2500.00000", "JPY", 2_500),
        ("999999999999.99", "TWD", 99_999_999_999_999),
    ],
)
def test_amounts_are_parsed_exactly(text: str, currency: str, minor: int) -> None:
    assert parse_order_amount(text, currency) == minor


@pytest.mark.parametrize(
    ("text", "currency"),
    [
        ("0.001", "THB"),
        ("2500.5", "JPY"),
        ("1.000001", "USD"),
        ("1e3", "USD"),
        ("-1.00", "USD"),
        ("+1", "USD"),
        ("1,000.00", "USD"),
        (" 1", "USD"),
        ("", "USD"),
        ("null", "USD"),
        ("NaN", "USD"),
        ("١", "USD"),
        ("1" * 13, "USD"),
        ("1.00", ""),
    ],
)
def test_an_invalid_or_too_precise_amount_is_refused(text: str, currency: str) -> None:
    with pytest.raises(ValueError, match=r"amount|precise"):
        parse_order_amount(text, currency)


@pytest.mark.parametrize(
    ("text", "currency", "minor", "refunded"),
    [("12.34", "SGD", 1_234, "12.34"), ("9", "VND", 9, "9.00"), ("1.234", "KWD", 1_234, "1.234")],
)
def test_amounts_in_unsupported_currencies_are_formatted_for_refunds(
    text: str, currency: str, minor: int, refunded: str
) -> None:
    assert parse_order_amount(text, currency) == minor
    assert format_action_amount(minor, currency) == refunded


@given(minor=st.integers(1, 10**12 - 1), currency=st.sampled_from(sorted(DECIMALS)))
def test_formatted_amounts_are_parsed_to_the_same_value(minor: int, currency: str) -> None:
    if currency == "IDR":
        minor -= minor % 100
    assert parse_order_amount(format_order_amount(minor, currency), currency) == minor
    assert parse_order_amount(format_action_amount(minor, currency), currency) == minor
