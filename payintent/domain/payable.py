"""What can be paid: the one rule behind the catalog, creates and quotes."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from payintent.domain.catalog import payable_by_country, payable_currencies
from payintent.domain.currencies import TENDER
from payintent.domain.merchant import Acceptance, Market, PaymentMethod


@dataclass(frozen=True, slots=True, eq=False)
class PayableMethods:
    methods: tuple[tuple[PaymentMethod, Market], ...]  # each with where it can be used
    by_country: Mapping[str, tuple[str, ...]]  # currencies; restrictions are ignored


def find_payable_methods(market: Market, methods: Iterable[PaymentMethod]) -> PayableMethods:
    reached = [(method, reached_by(method)) for method in methods]
    usable = tuple((method, market) for method, market in reached if market is not None)
    return PayableMethods(usable, payable_by_country(market, tuple(at for _, at in usable)))


def reached_by(method: Acceptance) -> Market | None:
    """Return the currencies and countries a method can be used for; None where it cannot.

    The method and its account are enabled, its token is enabled and has an address, its chain is
    watched, and its gateway counts the currency. Countries are those of both method and account.
    """
    if not (method.enabled and method.account_enabled):
        return None
    taken = tuple(code for code in method.currencies if held_decimals(method, code) is not None)
    countries = common_countries(method.countries, method.account_countries)
    return Market(countries, taken) if taken else None


def reached_by_all(methods: Iterable[Acceptance]) -> tuple[Market, ...]:
    found = (reached_by(method) for method in methods)
    return tuple(reached for reached in found if reached is not None)


def common_countries(
    countries: tuple[str, ...] | None, others: Collection[str] | None
) -> tuple[str, ...] | None:
    """Return the countries that two lists share; `None` stands for all."""
    if others is None:
        return countries
    if countries is None:
        return tuple(sorted(others))
    return tuple(country for country in countries if country in others)


def held_decimals(method: Acceptance, currency: str) -> int | None:
    """Return the decimals of a currency at a method: a token's on its chain, or ours.

    `None` where its gateway does not count the currency, or its token is not taken on its chain.
    """
    if method.decimals is not None and currency not in method.decimals:
        return None
    if method.token is not None:
        return method.token_decimals
    return TENDER[currency].amount_decimals


def payable_decimals(market: Market, methods: Iterable[Acceptance]) -> dict[str, int]:
    """Return each currency payable somewhere, with the most decimals that a method supports.

    Restrictions are ignored: they depend on the buyer.
    """
    found: dict[str, int] = {}
    for method in methods:
        reached = reached_by(method)
        for code in payable_currencies(market, (reached,)) if reached else ():
            found[code] = max(found.get(code, 0), held_decimals(method, code) or 0)
    return found
