"""Money as text, `Decimal` and smallest units, never as float."""

import re
from decimal import ROUND_HALF_UP, ROUND_UP, Context, Decimal
from functools import lru_cache
from typing import TypeGuard

from payintent.domain.currencies import CURRENCIES, minor_decimals
from payintent.domain.errors import ErrorCode, RefusedError

#: Exact products of amounts and rates; the default context rounds to 28 digits.
EXACT = Context(prec=80)

_PLAIN = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", re.ASCII)


def parse_amount(
    raw: object,
    currency: str,
    lowest: Decimal,
    highest: Decimal,
) -> Decimal:
    """Parse the `amount` of a request in a supported currency.

    Raises `INVALID_AMOUNT` if it is not a plain decimal string (malformed), or if the value is not
    positive, has too many decimals, or is not between `lowest` and `highest`.
    """
    if not is_plain_decimal(raw):
        raise RefusedError(
            ErrorCode.INVALID_AMOUNT, "amount must be a plain decimal string", malformed=True
        )
    value = Decimal(raw)
    if value <= 0:
        raise RefusedError(ErrorCode.INVALID_AMOUNT, "amount must be greater than zero")
    decimals = CURRENCIES[currency].amount_decimals
    if len(raw.partition(".")[2]) > decimals:
        raise RefusedError(
            ErrorCode.INVALID_AMOUNT, f"amount of {currency} has at most {decimals} decimals"
        )
    if not lowest <= value <= highest:
        raise RefusedError(ErrorCode.INVALID_AMOUNT, f"amount must be from {lowest} to {highest}")
    return value


def is_plain_decimal(raw: object) -> TypeGuard[str]:
    """Return whether a value is ASCII decimal text without exponent, plus sign, leading zeros."""
    return isinstance(raw, str) and _PLAIN.fullmatch(raw) is not None


def trim_zeros(text: str | None) -> str | None:
    """Remove trailing zeros from a plain decimal (`10` for `10.00`); leaves the rest unchanged."""
    if is_plain_decimal(text) and "." in text:
        return text.rstrip("0").removesuffix(".")
    return text


def format_amount(value: Decimal, decimals: int, *, trim: bool = False) -> str:
    """Format an amount with `decimals` and without exponent; zero is `"0"`.

    `trim` removes trailing zeros, because tokens have up to 18 decimals.
    """
    if value == 0:
        return "0"
    text = format(value.quantize(_unit(decimals), context=EXACT), "f")
    return text.rstrip("0").rstrip(".") if trim and "." in text else text


def format_smallest_units(
    amount_minor: int, currency: str, token_decimals: int | None, *, on_chain: bool
) -> str | None:
    """Format an amount of smallest units; returns None if the token's decimals are unknown."""
    decimals = token_decimals if on_chain else minor_decimals(currency)
    if decimals is None:
        return None
    amount = Decimal(amount_minor).scaleb(-decimals, EXACT)
    return format_amount(amount, decimals, trim=on_chain)


def round_half_up(value: Decimal, decimals: int) -> Decimal:
    """Round a fee or a tax, half away from zero."""
    return value.quantize(_unit(decimals), ROUND_HALF_UP, EXACT)


def round_up(value: Decimal, decimals: int) -> Decimal:
    """Round a token amount up, so that the merchant receives at least the payment's amount."""
    return value.quantize(_unit(decimals), ROUND_UP, EXACT)


def to_smallest_unit(value: Decimal, decimals: int) -> int | None:
    """Convert to smallest units (minor units, wei); returns None if it has too many decimals."""
    scaled = value.scaleb(decimals, EXACT)
    whole = scaled.to_integral_value(context=EXACT)
    return int(whole) if whole == scaled else None


@lru_cache(maxsize=100)
def _unit(decimals: int) -> Decimal:
    return Decimal(1).scaleb(-decimals)
