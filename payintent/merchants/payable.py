"""Determine which payment methods can be used, for the catalog, new payments and quotes."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import TypeVar

from payintent.core.countries import COUNTRY_NAMES, TENDER_BY_COUNTRY
from payintent.core.money import CURRENCIES, TENDER
from payintent.gateways.port import GatewayCapabilities
from payintent.merchants.model import Acceptance, Market, PaymentMethod, UnavailablePart


class RestrictionType(StrEnum):
    CRYPTO = "CRYPTO"  # crypto payment methods and catalog currencies
    ONRAMP = "ONRAMP"  # fiat-to-crypto on-ramp orders


@dataclass(frozen=True, slots=True)
class Restrictions:
    crypto: frozenset[str] = frozenset()
    onramp: frozenset[str] = frozenset()
    crypto_listed: frozenset[str] = frozenset()  # countries restricted now or in the past

    def allows_crypto(self, country: str | None, viewer: str | None) -> bool:
        """Return whether both the country of the quotes and the viewer's country allow crypto.

        An unknown country (None) is not restricted.
        """
        return self.crypto.isdisjoint({country, viewer})


_CACHE_SIZE = 1_000  # entries of about 5 KiB each


def list_payable_countries(
    market: Market, methods: tuple[Market, ...], restrictions: Restrictions, viewer: str | None
) -> list[tuple[str, list[str]]]:
    """List countries, sorted by name, with their payable currencies.

    `market` is the merchant's market; `methods` are the markets of its usable methods.
    """
    by_country = payable_by_country(market, methods)
    entries = [
        (country, _filter_currencies(country, by_country[country], restrictions, viewer))
        for country in sorted(by_country, key=COUNTRY_NAMES.__getitem__)
    ]
    return [(country, currencies) for country, currencies in entries if currencies]


def payable_currencies(market: Market, methods: tuple[Market, ...]) -> frozenset[str]:
    """Return the currencies payable in at least one country, ignoring restrictions."""
    return frozenset(
        code for codes in payable_by_country(market, methods).values() for code in codes
    )


@lru_cache(maxsize=_CACHE_SIZE)
def payable_by_country(
    market: Market, methods: tuple[Market, ...]
) -> Mapping[str, tuple[str, ...]]:
    """Return the currencies payable in each country, ignoring restrictions."""
    return {
        country: tuple(
            code
            for code in currencies
            if market.includes(code, country)
            and any(method.includes(code, country) for method in methods)
        )
        for country, currencies in TENDER_BY_COUNTRY.items()
    }


def _filter_currencies(
    country: str, codes: tuple[str, ...], restrictions: Restrictions, viewer: str | None
) -> list[str]:
    """Remove tokens that are only used for settlement, and restricted cryptocurrencies."""
    allows_crypto = restrictions.allows_crypto(country, viewer)
    return [
        code
        for code in codes
        if code in CURRENCIES and (allows_crypto or not CURRENCIES[code].is_crypto)
    ]


A = TypeVar("A", bound=Acceptance)


@dataclass(frozen=True, slots=True, eq=False)
class PayableMethods:
    methods: tuple[tuple[PaymentMethod, Market], ...]  # each method with its usable market
    by_country: Mapping[str, tuple[str, ...]]  # payable currencies, ignoring restrictions


def apply_capabilities(method: A, capabilities: GatewayCapabilities | None) -> A:
    """Restrict a method to its gateway's capabilities. If they are None, disable the method."""
    if capabilities is None:
        return make_unavailable(method, UnavailablePart.ADAPTER)
    return replace(
        method,
        decimals=capabilities.decimals,
        amount_limits={**capabilities.limits, **method.amount_limits},
        countries=_intersect(method.countries, capabilities.countries),
    )


def make_unavailable(method: A, part: UnavailablePart) -> A:
    """Return the method marked as unavailable. An earlier reason is kept."""
    if not method.account_enabled:
        return method
    return replace(method, account_enabled=False, unavailable_part=part)


def find_payable_methods(market: Market, methods: Iterable[PaymentMethod]) -> PayableMethods:
    usable_methods = tuple(
        (method, method_market)
        for method in methods
        if (method_market := find_usable_market(method)) is not None
    )
    method_markets = tuple(method_market for _, method_market in usable_methods)
    return PayableMethods(usable_methods, payable_by_country(market, method_markets))


def find_usable_market(method: Acceptance) -> Market | None:
    """Return the market in which a method can be used, or None if it cannot be used.

    The method, its account and its token must be enabled, the token must have an address, the chain
    must be watched, and the gateway must support the currency. Both the method and the account must
    allow the country.
    """
    if not (method.enabled and method.account_enabled):
        return None
    currencies = tuple(
        code for code in method.currencies if payable_precision(method, code) is not None
    )
    countries = _intersect(method.countries, method.account_countries)
    return Market(countries, currencies) if currencies else None


def usable_markets(methods: Iterable[Acceptance]) -> tuple[Market, ...]:
    return tuple(filter(None, map(find_usable_market, methods)))


def payable_precision(method: Acceptance, currency: str) -> int | None:
    """Return the number of decimals of the token, or of the currency if there is no token.

    Returns None if the gateway does not support the currency, or if the chain does not support the
    token.
    """
    if method.decimals is not None and currency not in method.decimals:
        return None
    if method.token is not None:
        return method.token_decimals
    return TENDER[currency].amount_decimals


def payable_decimals(market: Market, methods: Iterable[Acceptance]) -> dict[str, int]:
    """Return each payable currency with the maximum number of decimals that any method supports.

    Restrictions are ignored because they depend on the buyer.
    """
    decimals: dict[str, int] = {}
    for method in methods:
        for code in payable_currencies(market, usable_markets([method])):
            precision = payable_precision(method, code) or 0
            decimals[code] = max(decimals.get(code, 0), precision)
    return decimals


def allows_country(countries: tuple[str, ...] | None, country: str) -> bool:
    return countries is None or country in countries


def _intersect(
    countries: tuple[str, ...] | None, supported: Collection[str] | None
) -> tuple[str, ...] | None:
    """Return the countries that are in both lists; None means all countries."""
    if supported is None:
        return countries
    if countries is None:
        return tuple(sorted(supported))
    return tuple(country for country in countries if country in supported)
