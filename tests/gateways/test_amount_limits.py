"""Amount limits of payment methods, set by operators and gateways."""

from decimal import Decimal

import pytest

from payintent.gateways.amount_limits import AmountLimits, parse_limits


def test_limits_are_parsed_by_currency_and_an_empty_bound_is_unlimited() -> None:
    assert parse_limits(["USD:0.50:1000", "JPY:50:", "THB::10.5", "IDR::"]) == {
        "USD": AmountLimits(Decimal("0.50"), Decimal(1000)),
        "JPY": AmountLimits(Decimal(50), None),
        "THB": AmountLimits(None, Decimal("10.5")),
        "IDR": AmountLimits(),
    }
    assert parse_limits([]) == {}


@pytest.mark.parametrize(
    "entries",
    [
        [""],
        ["USD"],
        ["USD:1"],
        ["USD:1:2:3"],
        ["usd:1:2"],
        ["XXX:1:2"],
        ["USD:-1:2"],
        ["USD:1e2:"],
        ["USD:NaN:"],
        ["USD:٣:"],
        ["USD:0.001:"],
        ["JPY:0.5:"],
        ["USD:2:1"],
        ["USD:1:2", "USD:1:2"],
        ["USD:1:2 "],
        ["USD:" + "9" * 21 + ":"],
    ],
)
def test_invalid_limits_are_refused(entries: list[str]) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_limits(entries)


@pytest.mark.parametrize(
    ("total", "breach"),
    [
        ("0.49", "less than the minimum of 0.50 USD"),
        ("0.50", None),
        ("1000.00", None),
        ("1000.01", "more than the maximum of 1000.00 USD"),
    ],
)
def test_limits_are_inclusive(total: str, breach: str | None) -> None:
    limits = AmountLimits(Decimal("0.50"), Decimal(1000))
    assert limits.describe_violation(Decimal(total), "USD") == breach
    assert AmountLimits().describe_violation(Decimal(total), "USD") is None
