"""The catalog, compared with a simple model for every country, currency, method and viewer."""

from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from payintent.core.countries import COUNTRIES, COUNTRY_NAMES
from payintent.core.money import CURRENCIES
from payintent.merchants.model import Market
from payintent.merchants.payable import Restrictions, list_payable_countries, payable_currencies
from payintent.quotes.model import make_quotes, resolve_quote_country
from payintent.quotes.offers import QuoteCountry
from tests.support.sample_values import a_merchant, a_method, a_payment, payable

_EVERYWHERE = Market()
_FREE = Restrictions()

_countries = st.lists(st.sampled_from(["GL", "TH", "JP", "US", "DE", "FR"]), unique=True)
_currencies = st.lists(st.sampled_from(sorted(CURRENCIES)), min_size=1, unique=True)
_markets = st.builds(
    Market,
    st.none() | _countries.filter(bool).map(tuple),
    st.none() | _currencies.map(tuple),
)
_methods = st.lists(
    st.builds(Market, st.none() | _countries.filter(bool).map(tuple), _currencies.map(tuple)),
    max_size=4,
).map(tuple)
_restricted = st.frozensets(st.sampled_from(["GL", "TH", "US", "DE", "KR"]))
_viewers = st.sampled_from([None, "TH", "DE", "KR", "ZZ"])


@settings(max_examples=150, deadline=None)
@given(market=_markets, methods=_methods, restricted=_restricted, viewer=_viewers)
def test_the_catalog_matches_the_model(
    market: Market, methods: tuple[Market, ...], restricted: frozenset[str], viewer: str | None
) -> None:
    expected: dict[str, set[str]] = {}
    for country, code in product(COUNTRIES, CURRENCIES):
        if (
            code in COUNTRIES[country]
            and (market.countries is None or country in market.countries)
            and (market.currencies is None or code in market.currencies)
            and any(
                code in (method.currencies or ())
                and (method.countries is None or country in method.countries)
                for method in methods
            )
            and not (CURRENCIES[code].is_crypto and (country in restricted or viewer in restricted))
        ):
            expected.setdefault(country, set()).add(code)
    catalog = list_payable_countries(market, methods, Restrictions(crypto=restricted), viewer)
    assert {country: set(codes) for country, codes in catalog} == expected
    assert [country for country, _ in catalog] == sorted(expected, key=COUNTRY_NAMES.__getitem__)
    for country, codes in catalog:
        assert codes == [code for code in COUNTRIES[country] if code in codes]
    unrestricted = list_payable_countries(market, methods, _FREE, None)
    assert payable_currencies(market, methods) == {
        code for _, codes in unrestricted for code in codes
    }


@settings(max_examples=60, deadline=None)
@given(
    market=_markets,
    markets=_methods,
    restricted=_restricted,
    viewer=_viewers,
    country=st.sampled_from(["GL", "TH", "US", "DE"]),
    currency=st.sampled_from(sorted(CURRENCIES)),
)
def test_catalog_and_quotes_offer_the_same_currencies(
    market: Market,
    markets: tuple[Market, ...],
    restricted: frozenset[str],
    viewer: str | None,
    country: str,
    currency: str,
) -> None:
    restrictions = Restrictions(crypto=restricted)
    catalog_currencies = dict(list_payable_countries(market, markets, restrictions, viewer)).get(
        country, []
    )
    methods = [a_method(currencies=item.currencies, countries=item.countries) for item in markets]
    quote_country = QuoteCountry(
        country, "query", crypto=restrictions.allows_crypto(country, viewer)
    )
    payment = a_payment(currency=currency, include_pegged_assets=False)
    merchant = a_merchant(market=market)
    quotes = make_quotes(payment, merchant, methods, quote_country, None, {})
    offered: set[Any] = {offer.price.currency for offer in quotes}
    assert offered == ({currency} & set(catalog_currencies))


def test_an_unrestricted_method_offers_every_country_of_section_2_5() -> None:
    everything = (Market(None, tuple(CURRENCIES)),)
    catalog = list_payable_countries(_EVERYWHERE, everything, _FREE, None)
    assert {country: tuple(codes) for country, codes in catalog} == COUNTRIES
    assert len(catalog) == 53


def test_the_catalog_is_empty_without_a_usable_method() -> None:
    assert list_payable_countries(_EVERYWHERE, (), _FREE, None) == []
    assert payable_currencies(_EVERYWHERE, ()) == frozenset()


def test_a_currency_is_not_payable_if_no_country_of_the_method_uses_it() -> None:
    baht_in_america = (Market(("US",), ("THB", "USD")),)
    assert payable_currencies(_EVERYWHERE, baht_in_america) == {"USD"}
    assert payable_currencies(Market(("TH",), None), baht_in_america) == frozenset()


def test_the_quote_country_is_in_the_market_of_the_merchant() -> None:
    dollars = a_payment(currency="USD")
    methods = [a_method(), a_method(currencies=("USDT",))]
    for market, default, expected in (
        (_EVERYWHERE, "US", ("US", "default")),
        (Market(("SG", "FR"), None), "US", ("FR", "first")),  # from the specification's table
        (Market(("SG", "FR"), None), "SG", ("SG", "default")),
        (Market(("TH", "SG"), ("USD",)), "TH", ("SG", "first")),  # USDT is not in the market
        (Market(("TH", "SG"), ("USD", "USDT")), "TH", ("TH", "default")),
        (Market(("JP",), ("JPY",)), "US", ("US", "default")),  # no currency is payable
    ):
        merchant = a_merchant(market=market, default_country=default)
        usable = payable(methods, merchant)
        quote_country = resolve_quote_country(dollars, merchant, usable, None, None, _FREE)
        assert (quote_country.country, quote_country.source) == expected, market
