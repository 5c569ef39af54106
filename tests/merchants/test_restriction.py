"""Crypto restrictions for every combination of countries, buyers and viewers."""

from datetime import UTC, datetime
from itertools import chain, combinations, product

from payintent.merchants.payable import Restrictions, RestrictionType
from payintent.merchants.restrictions import Restriction, collect_countries
from payintent.quotes.model import resolve_quote_country
from payintent.quotes.offers import QuoteCountry
from tests.support.sample_values import a_merchant, a_method, a_payment, payable

_PLACES = ("DE", "US", "KR")
_UNKNOWN = (None,)
_AT = datetime(2026, 1, 2, tzinfo=UTC)


def test_the_restriction_types_are_the_two_types_of_section_2_7() -> None:
    assert {item.value for item in RestrictionType} == {"CRYPTO", "ONRAMP"}


def test_crypto_is_hidden_only_if_the_country_or_the_viewers_country_is_restricted() -> None:
    sets = chain.from_iterable(combinations(_PLACES, size) for size in range(4))
    for countries, country, viewer in product(sets, _PLACES + _UNKNOWN, _PLACES + _UNKNOWN):
        allowed = Restrictions(crypto=frozenset(countries)).allows_crypto(country, viewer)
        assert allowed is (country not in countries and viewer not in countries)


def test_a_viewer_without_a_country_is_not_restricted() -> None:
    everywhere = Restrictions(crypto=frozenset(_PLACES))
    assert everywhere.allows_crypto(None, None)
    assert not everywhere.allows_crypto("DE", None)


def test_an_on_ramp_restriction_does_not_affect_crypto() -> None:
    restrictions = [_restriction(RestrictionType.ONRAMP, "DE")]
    assert collect_countries(restrictions).allows_crypto("DE", "DE")
    assert collect_countries(restrictions) == Restrictions(onramp=frozenset({"DE"}))


def test_a_lifted_restriction_has_no_effect_but_is_still_listed() -> None:
    restrictions = [
        _restriction(RestrictionType.CRYPTO, "DE", active=False),
        _restriction(RestrictionType.CRYPTO, "US"),
        _restriction(RestrictionType.ONRAMP, "KR", active=False),
    ]
    collected = collect_countries(restrictions)
    assert (collected.crypto, collected.onramp) == ({"US"}, frozenset())
    assert collected.crypto_listed == {"DE", "US"}


def test_a_restriction_hides_crypto_without_changing_the_country() -> None:
    payment, merchant = a_payment(currency="USD"), a_merchant()
    restricted = Restrictions(crypto=frozenset({"DE"}))
    for requested, viewer, expected in (
        ("DE", None, QuoteCountry("DE", "query", crypto=False)),
        ("US", "DE", QuoteCountry("US", "query", crypto=False)),
        (None, "DE", QuoteCountry("DE", "geo", crypto=False)),
        ("US", "KR", QuoteCountry("US", "query", crypto=True)),
        (None, None, QuoteCountry("US", "default", crypto=True)),
    ):
        assert (
            resolve_quote_country(
                payment, merchant, payable([a_method()]), requested, viewer, restricted
            )
            == expected
        )


def _restriction(kind: RestrictionType, country: str, *, active: bool = True) -> Restriction:
    return Restriction(type=kind, country=country, active=active, changed_at=_AT)
