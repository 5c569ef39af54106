"""Choose the country in which methods are offered, and make the quotes."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

from payintent.core.countries import (
    COUNTRIES,
    TENDER_BY_COUNTRY,
    is_payable_in,
    require_supported_country,
)
from payintent.core.errors import ErrorCode, RefusedError
from payintent.core.money import TENDER, list_accepted_currencies
from payintent.merchants.model import Merchant, PaymentMethod, Quote
from payintent.merchants.payable import PayableMethods, Restrictions
from payintent.payments.model import Payment
from payintent.quotes.offers import QuoteCountry, judge_methods, make_terms


def resolve_quote_country(
    payment: Payment,
    merchant: Merchant,
    payable_methods: PayableMethods,
    requested_country: str | None,
    viewer_country: str | None,
    restrictions: Restrictions,
) -> QuoteCountry:
    """Choose the country for the quotes, and determine whether tokens may be offered there.

    A requested country is used even if no method is available there. Otherwise, the first country
    with a suitable method is used, starting with the viewer's and the merchant's countries.

    Raises `BAD_REQUEST` or `UNSUPPORTED_COUNTRY` if the requested country is not supported.
    """
    if requested_country is not None:
        country = require_supported_country(requested_country)
        return QuoteCountry(
            country, "query", crypto=restrictions.allows_crypto(country, viewer_country)
        )
    pegged = payment.include_pegged_assets
    accepted_codes = list_accepted_currencies(payment.currency, pegged=pegged)
    for candidate in _list_candidate_countries(merchant, viewer_country, restrictions):
        allowed_codes = (
            code for code in accepted_codes if candidate.crypto or not TENDER[code].is_crypto
        )
        if not set(payable_methods.by_country[candidate.country]).isdisjoint(allowed_codes):
            return candidate
    # No method is available at the moment, so choose a country that supports the currency.
    return next(
        candidate
        for candidate in _list_candidate_countries(merchant, viewer_country, restrictions)
        if candidate.source != "geo"
        and is_payable_in(candidate.country, payment.currency, pegged=pegged)
    )


def _list_candidate_countries(
    merchant: Merchant, viewer_country: str | None, restrictions: Restrictions
) -> Iterator[QuoteCountry]:
    def make_candidate(country: str, source: str) -> QuoteCountry:
        return QuoteCountry(
            country, source, crypto=restrictions.allows_crypto(country, viewer_country)
        )

    if viewer_country is not None and viewer_country in COUNTRIES:
        yield make_candidate(viewer_country, "geo")
    yield make_candidate(merchant.default_country, "default")
    for country in COUNTRIES:
        yield make_candidate(country, "first")


def make_quotes(
    payment: Payment,
    merchant: Merchant,
    methods: Iterable[PaymentMethod],
    quote_country: QuoteCountry,
    currency: str | None,
    tax_rates: Mapping[str, Decimal],
) -> list[Quote]:
    """Return a quote for each suitable method and currency, in the order of `methods`.

    Raises `INVALID_CURRENCY` or `UNSUPPORTED_CURRENCY` if the payment cannot be made in `currency`
    in this country.
    """
    require_currency_in_country(payment, quote_country.country, currency)
    terms = make_terms(payment, merchant, tax_rates, currency)
    offers = judge_methods(terms, methods, quote_country)
    return [offer.result for offer in offers if isinstance(offer.result, Quote)]


def require_currency_in_country(payment: Payment, country: str, currency: str | None) -> None:
    if currency is None:
        return
    if currency not in TENDER:
        raise RefusedError(ErrorCode.INVALID_CURRENCY, f"currency {currency!r} is not supported")
    accepted_codes = list_accepted_currencies(
        payment.currency, pegged=payment.include_pegged_assets
    )
    if currency not in accepted_codes or currency not in TENDER_BY_COUNTRY[country]:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_CURRENCY,
            f"this payment cannot be made in {currency} in {country}",
        )
