"""Currencies, and amounts as text, `Decimal` or smallest units. Floats are never used."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, ROUND_UP, Context, Decimal
from functools import lru_cache
from typing import TypeGuard

from payintent.core.errors import ErrorCode, RefusedError


@dataclass(frozen=True, slots=True)
class Currency:
    code: str
    is_crypto: bool
    display_decimals: int  # shown to buyers: ISO 4217 decimals for fiat, 4 for tokens
    amount_decimals: int  # allowed in amounts; for tokens, the maximum number on any chain


FIAT: dict[str, int] = {"USD": 2, "THB": 2, "JPY": 0, "TWD": 2, "IDR": 2, "PHP": 2}
CRYPTO = ("USDT", "NATIVED")
#: Tokens that are accepted only for payments in the fiat currency to which they are pegged.
SETTLEMENT_TOKENS = ("USDC",)
TOKEN_DECIMALS_MAX = 18
#: Decimals of every token on the test chain.
TEST_TOKEN_DECIMALS = 6
CRYPTO_DISPLAY_DECIMALS = 4

#: Currencies that buyers can pay with.
TENDER: dict[str, Currency] = {
    code: Currency(code, is_crypto=False, display_decimals=decimals, amount_decimals=decimals)
    for code, decimals in FIAT.items()
} | {
    code: Currency(
        code,
        is_crypto=True,
        display_decimals=CRYPTO_DISPLAY_DECIMALS,
        amount_decimals=TOKEN_DECIMALS_MAX,
    )
    for code in (*CRYPTO, *SETTLEMENT_TOKENS)
}
#: Currencies in which payments can be created; only these appear in the API and the catalog.
CURRENCIES: dict[str, Currency] = {code: TENDER[code] for code in (*FIAT, *CRYPTO)}

_ZERO_DECIMAL_CODES = """
    BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF
"""
_THREE_DECIMAL_CODES = "BHD IQD JOD KWD LYD OMR TND"
_ISO_DECIMALS: dict[str, int] = {
    code: decimals
    for decimals, codes in ((0, _ZERO_DECIMAL_CODES), (3, _THREE_DECIMAL_CODES))
    for code in codes.split()
}
#: Decimals of minor units, including currencies that payments do not support. Currencies that are
#: not listed have `MINOR_DECIMALS_DEFAULT`.
MINOR_DECIMALS: Mapping[str, int] = _ISO_DECIMALS | {
    code: currency.amount_decimals for code, currency in TENDER.items()
}
MINOR_DECIMALS_DEFAULT = 2
#: Tokens that are pegged to a fiat currency (spec 2.2, `include_pegged_assets`).
PEGGED_TOKENS: dict[str, tuple[str, ...]] = {"USD": (*CRYPTO, *SETTLEMENT_TOKENS)}


def get_minor_decimals(currency: str) -> int:
    return MINOR_DECIMALS.get(currency, MINOR_DECIMALS_DEFAULT)


def list_accepted_currencies(currency: str, *, pegged: bool) -> tuple[str, ...]:
    """Return the currencies accepted for a payment in `currency`, with `currency` first."""
    return (currency, *(PEGGED_TOKENS.get(currency, ()) if pegged else ()))


def require_payable_currency(
    code: str, payable_currencies: Collection[str], *, pegged: bool
) -> None:
    """Raise if a currency is unknown, or if none of the merchant's methods supports it."""
    if code not in CURRENCIES:
        raise RefusedError(ErrorCode.INVALID_CURRENCY, f"currency {code!r} is not supported")
    if not any(
        currency in payable_currencies for currency in list_accepted_currencies(code, pegged=pegged)
    ):
        raise RefusedError(
            ErrorCode.UNSUPPORTED_CURRENCY, f"the merchant has no payment method for {code}"
        )


#: Context for exact products of amounts and rates. The default context rounds to 28 digits.
EXACT = Context(prec=80)

_LEADING_NUMBER = re.compile(r"(-?)([0-9]+)", re.ASCII)
_PLAIN_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", re.ASCII)


def parse_amount(raw: object, currency: str, minimum: Decimal, maximum: Decimal) -> Decimal:
    """Parse the `amount` of a request in a supported currency.

    Raises `INVALID_AMOUNT` if it is not a plain decimal string (malformed), or if the value is not
    positive, has too many decimals, or is not between `minimum` and `maximum`.
    """
    if not is_plain_decimal(raw):
        raise RefusedError(
            ErrorCode.INVALID_AMOUNT, "amount must be a plain decimal string", is_malformed=True
        )
    value = Decimal(raw)
    if value <= 0:
        raise RefusedError(ErrorCode.INVALID_AMOUNT, "amount must be greater than zero")
    decimals = CURRENCIES[currency].amount_decimals
    if len(raw.partition(".")[2]) > decimals:
        raise RefusedError(
            ErrorCode.INVALID_AMOUNT, f"amount in {currency} must have at most {decimals} decimals"
        )
    if not minimum <= value <= maximum:
        raise RefusedError(ErrorCode.INVALID_AMOUNT, f"amount must be from {minimum} to {maximum}")
    return value


def is_plain_decimal(raw: object) -> TypeGuard[str]:
    """Return whether a value is decimal ASCII text with no exponent, plus sign or leading zeros."""
    return isinstance(raw, str) and _PLAIN_DECIMAL.fullmatch(raw) is not None


def trim_zeros(text: str | None) -> str | None:
    """Remove trailing zeros from a plain decimal (`10.00` becomes `10`); keep other text."""
    if is_plain_decimal(text) and "." in text:
        return text.rstrip("0").removesuffix(".")
    return text


def format_amount(value: Decimal, decimals: int, *, trim: bool = False) -> str:
    """Format an amount with `decimals` decimal places and no exponent; zero is `"0"`.

    `trim` removes trailing zeros, because tokens have up to 18 decimals.
    """
    if value == 0:
        return "0"
    text = format(value.quantize(_get_smallest_unit(decimals), context=EXACT), "f")
    return text.rstrip("0").rstrip(".") if trim and "." in text else text


def format_smallest_units(
    amount_minor: int, currency: str, token_decimals: int | None, *, on_chain: bool
) -> str | None:
    """Format smallest units as an amount; return None if the token's decimals are unknown.

    If `on_chain` is False, a token amount is in test tokens.
    """
    is_token = currency in TENDER and TENDER[currency].is_crypto
    if on_chain:
        decimals = token_decimals
    else:
        decimals = TEST_TOKEN_DECIMALS if is_token else get_minor_decimals(currency)
    if decimals is None:
        return None
    amount = Decimal(amount_minor).scaleb(-decimals, EXACT)
    return format_amount(amount, decimals, trim=on_chain or is_token)


def group_thousands(text: str) -> str:
    """Add thousands separators to the amount at the start of `text`, such as `1590.00 THB`."""
    match = _LEADING_NUMBER.match(text)
    return text if match is None else f"{match[1]}{int(match[2]):,}{text[match.end() :]}"


def format_display_amount(amount: str, currency: str) -> str:
    """Format an amount for display, such as `1,590.00 THB`. Fiat amounts have all decimals."""
    return f"{format_display_number(amount, currency)} {currency}"


def format_display_number(amount: str, currency: str) -> str:
    """Format an amount for a table whose rows name the currency, such as `1,590.00`."""
    tender = TENDER.get(currency)
    decimals = 0 if tender is None or tender.is_crypto else tender.amount_decimals
    whole, _, fraction = amount.partition(".")
    fraction = fraction.ljust(decimals, "0")
    return f"{group_thousands(whole)}{'.' if fraction else ''}{fraction}"


def round_half_up(value: Decimal, decimals: int) -> Decimal:
    """Round a fee or a tax, half away from zero."""
    return value.quantize(_get_smallest_unit(decimals), ROUND_HALF_UP, EXACT)


def round_up(value: Decimal, decimals: int) -> Decimal:
    """Round a token amount up, so that the merchant receives at least the payment's amount."""
    return value.quantize(_get_smallest_unit(decimals), ROUND_UP, EXACT)


def to_smallest_unit(value: Decimal, decimals: int) -> int | None:
    """Convert to smallest units (such as wei); return None if there are too many decimals."""
    smallest_units = value.scaleb(decimals, EXACT)
    whole = smallest_units.to_integral_value(context=EXACT)
    return int(whole) if whole == smallest_units else None


@lru_cache(maxsize=100)
def _get_smallest_unit(decimals: int) -> Decimal:
    return Decimal(1).scaleb(-decimals)


def format_rate(rate: Decimal) -> str:
    """Format a rate without trailing zeros, such as `0.029` or `0`."""
    return "0" if rate == 0 else format(rate.normalize(), "f")
