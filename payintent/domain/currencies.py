"""The 8 currencies of spec section 2.5, their decimals, and the tokens pegged to them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from payintent.domain.errors import ErrorCode, RefusedError


@dataclass(frozen=True, slots=True)
class Currency:
    code: str
    crypto: bool
    display_decimals: int  # shown to buyers: ISO 4217 for fiat, 4 for tokens
    amount_decimals: int  # allowed in amounts; for tokens, the highest number on any chain


FIAT: dict[str, int] = {"USD": 2, "THB": 2, "JPY": 0, "TWD": 2, "IDR": 2, "PHP": 2}
CRYPTO = ("USDT", "NATIVED")
#: Tokens that only pay payments in their pegged fiat currency.
SETTLING = ("USDC",)
TOKEN_DECIMALS_MAX = 18
CRYPTO_DISPLAY_DECIMALS = 4

#: Currencies that buyers can pay with.
TENDER: dict[str, Currency] = {
    code: Currency(code, crypto=False, display_decimals=decimals, amount_decimals=decimals)
    for code, decimals in FIAT.items()
} | {
    code: Currency(
        code,
        crypto=True,
        display_decimals=CRYPTO_DISPLAY_DECIMALS,
        amount_decimals=TOKEN_DECIMALS_MAX,
    )
    for code in (*CRYPTO, *SETTLING)
}
#: Currencies of payments; the API and the catalog show only these.
CURRENCIES: dict[str, Currency] = {code: TENDER[code] for code in (*FIAT, *CRYPTO)}

_NO_DECIMALS = """
    BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF
"""
_THREE_DECIMALS = "BHD IQD JOD KWD LYD OMR TND"
_ISO_DECIMALS: dict[str, int] = {
    code: decimals
    for decimals, codes in ((0, _NO_DECIMALS), (3, _THREE_DECIMALS))
    for code in codes.split()
}
#: Decimals of minor units if they are not 2, including currencies that payments do not support.
MINOR_DECIMALS: Mapping[str, int] = _ISO_DECIMALS | {
    code: currency.amount_decimals for code, currency in TENDER.items()
}
MINOR_DECIMALS_DEFAULT = 2
#: Tokens that are pegged to a fiat currency (spec 2.2, `include_pegged_assets`).
PEGGED: dict[str, tuple[str, ...]] = {"USD": (*CRYPTO, *SETTLING)}


def minor_decimals(currency: str) -> int:
    return MINOR_DECIMALS.get(currency, MINOR_DECIMALS_DEFAULT)


def accepted_currencies(currency: str, *, pegged: bool) -> tuple[str, ...]:
    """Return the currencies that can pay a payment in `currency`, with `currency` first."""
    return (currency, *(PEGGED.get(currency, ()) if pegged else ()))


def require_payable_currency(code: str, payable: Collection[str], *, pegged: bool) -> None:
    """Raise if a currency is unknown or no method of the merchant can be paid in it."""
    if code not in CURRENCIES:
        raise RefusedError(ErrorCode.INVALID_CURRENCY, f"currency {code!r} is not known")
    if not any(currency in payable for currency in accepted_currencies(code, pegged=pegged)):
        raise RefusedError(
            ErrorCode.UNSUPPORTED_CURRENCY, f"this merchant has no payment method for {code}"
        )
