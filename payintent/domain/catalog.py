"""A merchant's catalog: which currencies are payable where (spec section 2.3)."""

from collections.abc import Sequence

from payintent.domain.market import COUNTRIES, COUNTRY_NAMES, CURRENCIES
from payintent.domain.merchant import Market
from payintent.domain.restriction import Restrictions


def payable(
    market: Market, methods: Sequence[Market], restrictions: Restrictions, viewer: str | None
) -> list[tuple[str, list[str]]]:
    """List countries by name, each with what can be paid there; those with nothing are left out.

    `market` is what the merchant was activated for, `methods` what each usable method reaches.
    """
    listed = [
        (country, _currencies(country, market, methods, restrictions, viewer))
        for country in sorted(COUNTRIES, key=COUNTRY_NAMES.__getitem__)
    ]
    return [(country, currencies) for country, currencies in listed if currencies]


def _currencies(
    country: str,
    market: Market,
    methods: Sequence[Market],
    restrictions: Restrictions,
    viewer: str | None,
) -> list[str]:
    crypto = restrictions.allow_crypto(country, viewer)
    return [
        code
        for code in COUNTRIES[country]
        if (crypto or not CURRENCIES[code].crypto)
        and market.includes(code, country)
        and any(method.includes(code, country) for method in methods)
    ]
