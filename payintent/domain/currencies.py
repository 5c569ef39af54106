"""Where one can pay and with what: the 53 countries and 8 currencies of spec section 2.5."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Currency:
    """A currency that a payment may be asked in, or at least paid with."""

    code: str
    crypto: bool
    display_decimals: int  # ISO 4217 for fiat, 4 for tokens: what people are shown
    amount_decimals: int  # what an amount may carry; a token's is its finest chain's


FIAT: dict[str, int] = {"USD": 2, "THB": 2, "JPY": 0, "TWD": 2, "IDR": 2, "PHP": 2}
CRYPTO = ("USDT", "NATIVED")
#: Tokens that no payment is asked in: they pay, one to one, what is asked in what they follow.
SETTLING = ("USDC",)
TOKEN_DECIMALS_MAX = 18
CRYPTO_DISPLAY_DECIMALS = 4

#: Whatever a payment may be paid with.
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
#: What a payment may be asked in, which is all that the API and the catalog name.
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
#: Decimals of each minor unit, also of currencies that no payment is asked in, and of all others.
MINOR_DECIMALS: Mapping[str, int] = _ISO_DECIMALS | {
    code: currency.amount_decimals for code, currency in TENDER.items()
}
MINOR_DECIMALS_ELSE = 2

GLOBAL = "GL"  # nowhere in particular: tokens only
LOCAL_FIAT: dict[str, str] = {"TH": "THB", "JP": "JPY", "TW": "TWD", "ID": "IDR", "PH": "PHP"}
_DOLLAR_CODES = """
    US GU KH AU GB CA FR MP AR VN UY DE ES LK MX PT SA UA PE QA AM CL NO IT NL SV KW PY BH DO PL CO
    NZ IN IE EG PA EC CH HU BG BE SE SG BR MY HK
"""
DOLLAR_COUNTRIES = tuple(_DOLLAR_CODES.split())

#: Payment currencies of each country, fiat first, as spec section 2.5 lists them.
COUNTRIES: Mapping[str, tuple[str, ...]] = (
    {GLOBAL: CRYPTO}
    | {country: (fiat, *CRYPTO) for country, fiat in LOCAL_FIAT.items()}
    | dict.fromkeys(DOLLAR_COUNTRIES, ("USD", *CRYPTO))
)

#: What can be paid with in each country: its payment currencies, and the tokens that only settle.
TENDERED: Mapping[str, tuple[str, ...]] = {
    country: (*codes, *SETTLING) for country, codes in COUNTRIES.items()
}

#: Tokens that follow a fiat currency one to one (spec 2.2, `include_pegged_assets`).
PEGGED: dict[str, tuple[str, ...]] = {"USD": (*CRYPTO, *SETTLING)}

COUNTRY_NAMES: dict[str, str] = {
    "GL": "Global", "TH": "Thailand", "JP": "Japan", "TW": "Taiwan", "ID": "Indonesia",
    "PH": "Philippines", "US": "United States", "GU": "Guam", "KH": "Cambodia", "AU": "Australia",
    "GB": "United Kingdom", "CA": "Canada", "FR": "France", "MP": "Northern Mariana Islands",
    "AR": "Argentina", "VN": "Vietnam", "UY": "Uruguay", "DE": "Germany", "ES": "Spain",
    "LK": "Sri Lanka", "MX": "Mexico", "PT": "Portugal", "SA": "Saudi Arabia", "UA": "Ukraine",
    "PE": "Peru", "QA": "Qatar", "AM": "Armenia", "CL": "Chile", "NO": "Norway", "IT": "Italy",
    "NL": "Netherlands", "SV": "El Salvador", "KW": "Kuwait", "PY": "Paraguay", "BH": "Bahrain",
    "DO": "Dominican Republic", "PL": "Poland", "CO": "Colombia", "NZ": "New Zealand",
    "IN": "India", "IE": "Ireland", "EG": "Egypt", "PA": "Panama", "EC": "Ecuador",
    "CH": "Switzerland", "HU": "Hungary", "BG": "Bulgaria", "BE": "Belgium", "SE": "Sweden",
    "SG": "Singapore", "BR": "Brazil", "MY": "Malaysia", "HK": "Hong Kong",
}  # fmt: skip


def minor_decimals(currency: str) -> int:
    """Give the decimals of a currency's minor unit, also of one that no payment is asked in."""
    return MINOR_DECIMALS.get(currency, MINOR_DECIMALS_ELSE)


def accepted_currencies(currency: str, *, pegged: bool) -> tuple[str, ...]:
    """Name what a payment in `currency` may be paid with, itself first."""
    return (currency, *(PEGGED.get(currency, ()) if pegged else ()))


def is_payable_in(country: str, currency: str, *, pegged: bool) -> bool:
    """Tell whether a country can pay such a payment with anything at all."""
    offered = TENDERED[country]
    return any(code in offered for code in accepted_currencies(currency, pegged=pegged))
