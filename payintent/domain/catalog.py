"""A merchant's catalog: which currencies are payable in which country (spec section 2.3)."""

from collections.abc import Mapping
from functools import lru_cache

from payintent.domain.countries import COUNTRY_NAMES, TENDERED
from payintent.domain.currencies import CURRENCIES
from payintent.domain.merchant import Market
from payintent.domain.restriction import Restrictions

_KEPT_MAX = 1_000  # merchants' catalogs in memory, some 5 KiB each


def list_payable(
    market: Market, methods: tuple[Market, ...], restrictions: Restrictions, viewer: str | None
) -> list[tuple[str, list[str]]]:
    """List countries by name with the currencies payable there; countries with none are left out.

    `market` is what the merchant was activated for, `methods` what each usable method accepts.
    """
    reached = payable_by_country(market, methods)
    listed = [
        (country, _allowed(country, reached[country], restrictions, viewer))
        for country in sorted(reached, key=COUNTRY_NAMES.__getitem__)
    ]
    return [(country, currencies) for country, currencies in listed if currencies]


def payable_currencies(market: Market, methods: tuple[Market, ...]) -> frozenset[str]:
    """Return the currencies that are payable in at least one country, ignoring restrictions."""
    return frozenset(
        code for codes in payable_by_country(market, methods).values() for code in codes
    )


@lru_cache(maxsize=_KEPT_MAX)
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


def _allowed(
    country: str, codes: tuple[str, ...], restrictions: Restrictions, viewer: str | None
) -> list[str]:
    crypto = restrictions.allow_crypto(country, viewer)
    shown = [code for code in codes if code in CURRENCIES]  # not settle-only tokens
    return [code for code in shown if crypto or not CURRENCIES[code].crypto]
