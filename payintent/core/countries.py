"""Supported countries and their currencies (spec section 2.5)."""

import re
from collections.abc import Mapping

from payintent.core.errors import BadRequestError, ErrorCode, RefusedError
from payintent.core.money import CRYPTO, SETTLEMENT_TOKENS, list_accepted_currencies

GLOBAL = "GL"  # no particular country; tokens only
#: Codes that edge networks send for viewers in an unknown country and for Tor users.
UNKNOWN_COUNTRY, TOR = "XX", "T1"
_EDGE_COUNTRY = re.compile(rf"[A-Z]{{2}}|{TOR}", re.ASCII)
LOCAL_FIAT: dict[str, str] = {"TH": "THB", "JP": "JPY", "TW": "TWD", "ID": "IDR", "PH": "PHP"}
_DOLLAR_CODES = """
    US GU KH AU GB CA FR MP AR VN UY DE ES LK MX PT SA UA PE QA AM CL NO IT NL SV KW PY BH DO PL CO
    NZ IN IE EG PA EC CH HU BG BE SE SG BR MY HK
"""
DOLLAR_COUNTRIES = tuple(_DOLLAR_CODES.split())


#: Payment currencies of each country, fiat first, in the order of spec section 2.5.
COUNTRIES: Mapping[str, tuple[str, ...]] = (
    {GLOBAL: CRYPTO}
    | {country: (fiat, *CRYPTO) for country, fiat in LOCAL_FIAT.items()}
    | dict.fromkeys(DOLLAR_COUNTRIES, ("USD", *CRYPTO))
)
#: Currencies that buyers can pay with in each country.
TENDER_BY_COUNTRY: Mapping[str, tuple[str, ...]] = {
    country: (*codes, *SETTLEMENT_TOKENS) for country, codes in COUNTRIES.items()
}
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


def is_edge_country(code: str) -> bool:
    """Return whether an edge network can send this code: two capital letters, or `T1`."""
    return _EDGE_COUNTRY.fullmatch(code) is not None


def is_payable_in(country: str, currency: str, *, pegged: bool) -> bool:
    """Return whether a payment in `currency` can be paid in a country."""
    tender = TENDER_BY_COUNTRY[country]
    return any(code in tender for code in list_accepted_currencies(currency, pegged=pegged))


def require_supported_country(code: str) -> str:
    """Return the code. Raises `RefusedError` if it is not in spec section 2.5."""
    if len(code) != 2:  # noqa: PLR2004 - ISO 3166-1 alpha-2
        raise BadRequestError("country must be a two-letter code")
    if code not in COUNTRIES:
        raise RefusedError(ErrorCode.UNSUPPORTED_COUNTRY, f"country {code!r} is not supported")
    return code


def check_optional_country(code: str | None) -> None:
    if code is not None:
        require_supported_country(code)
