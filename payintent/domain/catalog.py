"""A merchant's catalog: the payable currencies of each country (spec section 2.3)."""

from collections.abc import Mapping
from functools import lru_cache

from payintent.domain.countries import COUNTRY_NAMES, TENDERED
from payintent.domain.currencies import CURRENCIES
from payintent.domain.merchant import Market
from payintent.domain.restriction import Restrictions

_CACHED_MAX = 1_000  # catalogs, about 5 KiB each


def list_payable(
    market: Market, methods: tuple[Market, ...], restrictions: Restrictions, viewer: str | None
) -> list[tuple[str, list[str]]]:
    """List countries with payable currencies by name, without countries that have none.

    `market` is the merchant's, and `methods` has the market of each usable method.
    """
    by_country = payable_by_country(market, methods)
    entries = [
        (country, _filter_currencies(country, by_country[country], restrictions, viewer))
        for country in sorted(by_country, key=COUNTRY_NAMES.__getitem__)
    ]
    return [(country, currencies) for country, currencies in entries if currencies]


def payable_currencies(market: Market, methods: tuple[Market, ...]) -> frozenset[str]:
    """Return the currencies that are payable in any country, ignoring restrictions."""
    return frozenset(
        code for codes in payable_by_country(market, methods).values() for code in codes
    )


@lru_cache(maxsize=_CACHED_MAX)
def payable_by_country(
    market: Market, methods: tuple[Market, ...]
) -> Mapping[str, tuple[str, ...]]:
    """Return the currencies payable in each country, ignoring restrictions."""
    return {
        country: tuple(
            code
            for code in accepted
            if market.includes(code, country)
            and any(method.includes(code, country) for method in methods)
        )
        for country, accepted in TENDERED.items()
    }


def _filter_currencies(
    country: str, codes: tuple[str, ...], restrictions: Restrictions, viewer: str | None
) -> list[str]:
    """Remove settle-only tokens, and crypto if it is restricted."""
    crypto = restrictions.allow_crypto(country, viewer)
    return [
        code for code in codes if code in CURRENCIES and (crypto or not CURRENCIES[code].crypto)
    ]
