"""Countries and currencies, compared with a second copy of the specification's section 2.5."""

from payintent.core.countries import COUNTRIES, COUNTRY_NAMES, TENDER_BY_COUNTRY, is_payable_in
from payintent.core.money import CURRENCIES, TENDER, list_accepted_currencies

_CODES = (
    "US GU KH AU GB CA FR MP AR VN UY DE ES LK MX PT SA UA PE QA AM CL NO IT NL SV KW PY BH DO PL "
    "CO NZ IN IE EG PA EC CH HU BG BE SE SG BR MY HK"
)
DOLLARS = _CODES.split()
LOCAL = {"TH": "THB", "JP": "JPY", "TW": "TWD", "ID": "IDR", "PH": "PHP"}
TOKENS = {"USDT", "NATIVED"}


def test_the_53_countries_have_the_specified_currencies() -> None:
    expected = {"GL": TOKENS}
    expected |= {code: {fiat} | TOKENS for code, fiat in LOCAL.items()}
    expected |= {code: {"USD"} | TOKENS for code in DOLLARS}
    assert len(DOLLARS) == 47
    assert len(expected) == 53
    assert {code: set(currencies) for code, currencies in COUNTRIES.items()} == expected


def test_every_country_has_a_unique_name() -> None:
    assert COUNTRY_NAMES.keys() == COUNTRIES.keys()
    assert len(set(COUNTRY_NAMES.values())) == 53


def test_the_eight_currencies_have_the_specified_decimals() -> None:
    decimals = {code: currency.display_decimals for code, currency in CURRENCIES.items()}
    fiat = {"USD": 2, "THB": 2, "JPY": 0, "TWD": 2, "IDR": 2, "PHP": 2}
    assert decimals == fiat | {"USDT": 4, "NATIVED": 4}
    assert {code for code, currency in CURRENCIES.items() if currency.is_crypto} == TOKENS
    assert all(code == currency.code for code, currency in CURRENCIES.items())


def test_only_usd_payments_accept_pegged_tokens() -> None:
    assert set(list_accepted_currencies("USD", pegged=True)) == {"USD", "USDC"} | TOKENS
    for code in CURRENCIES.keys() - {"USD"}:
        assert list_accepted_currencies(code, pegged=True) == (code,)
    for code in CURRENCIES:
        assert list_accepted_currencies(code, pegged=False) == (code,)


def test_every_currency_is_payable_in_some_country_and_every_token_in_all_countries() -> None:
    for code in CURRENCIES:
        assert any(is_payable_in(country, code, pegged=False) for country in COUNTRIES)
    for country in COUNTRIES:
        assert all(is_payable_in(country, token, pegged=False) for token in TOKENS)
        assert is_payable_in(country, "USD", pegged=True)
    assert not is_payable_in("US", "JPY", pegged=True)
    assert not is_payable_in("GL", "USD", pegged=False)


def test_usdc_can_settle_usd_payments_but_is_not_a_payment_currency() -> None:
    assert TENDER.keys() - CURRENCIES.keys() == {"USDC"}
    assert all(TENDER[code] is CURRENCIES[code] for code in CURRENCIES)
    for country, currencies in COUNTRIES.items():
        assert set(TENDER_BY_COUNTRY[country]) - set(currencies) == {"USDC"}
    assert "USDC" not in list_accepted_currencies("USD", pegged=False)
