"""Choose the payment methods that buyers are offered, and compute their prices."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from payintent.core.countries import (
    COUNTRIES,
    TENDER_BY_COUNTRY,
    is_payable_in,
    require_supported_country,
)
from payintent.core.errors import ErrorCode, RefusedError
from payintent.core.money import (
    TENDER,
    list_accepted_currencies,
    round_up,
    to_smallest_unit,
)
from payintent.merchants.model import (
    Merchant,
    PaymentMethod,
    Price,
    Quote,
    TaxCountry,
    TaxManager,
)
from payintent.merchants.payable import (
    PayableMethods,
    Restrictions,
    find_usable_market,
    payable_precision,
)
from payintent.payments.model import Payment
from payintent.quotes.price import PriceRates, make_price


@dataclass(frozen=True, slots=True)
class QuoteCountry:
    """The country for which quotes are made, and how it was chosen.

    `source` is `query` (requested by the buyer), `geo` (the viewer's country), `default` (the
    merchant's country) or `first` (the first country with a suitable method). `crypto` is True if
    tokens may be offered.
    """

    country: str
    source: str
    crypto: bool = True


@dataclass(frozen=True, slots=True)
class QuoteRefusal:
    reason: str  # why a method is not offered in a currency; shown to operators
    is_limit: bool = False  # the total is outside the method's limits


def resolve_quote_country(
    payment: Payment,
    merchant: Merchant,
    payable_methods: PayableMethods,
    requested_country: str | None,
    viewer_country: str | None,
    restrictions: Restrictions,
) -> QuoteCountry:
    """Choose the country for which quotes are made, and whether tokens may be offered there.

    A requested country is used even if no method is available there. Otherwise the first country
    with a suitable method is used: the viewer's country, then the merchant's, then all others.

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
    payable_methods: PayableMethods,
    quote_country: QuoteCountry,
    currency: str | None,
    tax_rates: Mapping[str, Decimal],
) -> list[Quote]:
    """Return a quote for each suitable method and currency, in the order of `payable_methods`.

    Restricted tokens, and currencies for which the merchant is not activated, are omitted. Raises
    `INVALID_CURRENCY` or `UNSUPPORTED_CURRENCY` if the payment cannot be paid in `currency` in this
    country.
    """
    country = quote_country.country
    tax_rate = get_tax_rate(payment, choose_tax_country(merchant, quote_country), tax_rates)
    currencies = [
        code
        for code in _select_currencies(payment, country, currency)
        if (quote_country.crypto or not TENDER[code].is_crypto)
        and merchant.market.includes(code, country)
    ]
    return [
        quote
        for method, market in payable_methods.methods
        for code in currencies
        if market.includes(code, country)
        and isinstance(quote := _quote_or_refusal(payment, method, country, code, tax_rate), Quote)
    ]


def explain_method(
    payment: Payment,
    merchant: Merchant,
    method: PaymentMethod,
    quote_country: QuoteCountry,
    tax_rates: Mapping[str, Decimal],
) -> list[tuple[str, Quote | QuoteRefusal]]:
    """Return the method's quote or refusal for each currency in which the payment can be paid.

    The method must be enabled and its gateway available. Quotes equal those of `make_quotes`.
    """
    tax_rate = get_tax_rate(payment, choose_tax_country(merchant, quote_country), tax_rates)
    accepted_codes = list_accepted_currencies(
        payment.currency, pegged=payment.include_pegged_assets
    )
    return [
        (code, _explain_currency(payment, merchant, method, quote_country, code, tax_rate))
        for code in accepted_codes
        if code in method.currencies
    ]


def _explain_currency(
    payment: Payment,
    merchant: Merchant,
    method: PaymentMethod,
    quote_country: QuoteCountry,
    currency: str,
    tax_rate: Decimal,
) -> Quote | QuoteRefusal:
    country, market = quote_country.country, find_usable_market(method)
    if currency not in TENDER_BY_COUNTRY[country]:
        return QuoteRefusal(f"{currency} is not used in {country}")
    if TENDER[currency].is_crypto and not quote_country.crypto:
        return QuoteRefusal(f"crypto is restricted in {country}")
    if not merchant.market.includes(currency, country):
        return QuoteRefusal(f"the merchant is not activated for {currency} in {country}")
    if market is None or not market.includes(currency, country):
        if payable_precision(method, currency) is None:
            return QuoteRefusal(f"the gateway or chain does not support {currency}")
        return QuoteRefusal(f"the method, its account or its gateway is not available in {country}")
    return _quote_or_refusal(payment, method, country, currency, tax_rate)


def choose_tax_country(merchant: Merchant, quote_country: QuoteCountry) -> str:
    is_selected = merchant.tax_country is TaxCountry.SELECTION and quote_country.source == "query"
    return quote_country.country if is_selected else merchant.default_country


def get_tax_rate(payment: Payment, country: str, rates: Mapping[str, Decimal]) -> Decimal:
    return Decimal(0) if payment.tax_manager is TaxManager.NONE else rates.get(country, Decimal(0))


def _select_currencies(
    payment: Payment, country: str, requested_currency: str | None
) -> tuple[str, ...]:
    accepted_codes = list_accepted_currencies(
        payment.currency, pegged=payment.include_pegged_assets
    )
    payable_codes = tuple(code for code in accepted_codes if code in TENDER_BY_COUNTRY[country])
    if requested_currency is None:
        return payable_codes
    if requested_currency not in TENDER:
        raise RefusedError(
            ErrorCode.INVALID_CURRENCY, f"currency {requested_currency!r} is not supported"
        )
    if requested_currency not in payable_codes:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_CURRENCY,
            f"this payment cannot be paid in {requested_currency} in {country}",
        )
    return (requested_currency,)


def _quote_or_refusal(
    payment: Payment, method: PaymentMethod, country: str, currency: str, tax_rate: Decimal
) -> Quote | QuoteRefusal:
    decimals = payable_precision(method, currency)
    if decimals is None:
        return QuoteRefusal(f"the gateway or chain does not support {currency}")
    if not can_represent_exactly(payment, currency, decimals):
        return QuoteRefusal(f"this method supports only {decimals} decimals of {currency}")
    rates = PriceRates(
        fee_mode=method.fee_mode,
        fee_rate=method.fee_rate,
        tax_rate=tax_rate,
        decimals=decimals,
    )
    price = make_price(payment.amount, currency, rates)
    total_minor = to_smallest_unit(Decimal(price.total_amount), decimals)
    if total_minor is None or not _can_collect(method, price):
        return QuoteRefusal(f"the gateway cannot collect {price.total_amount} {currency} exactly")
    if total_minor < method.token_minimum:
        return QuoteRefusal(f"{price.total_amount} {currency} is below the contract's minimum")
    limits = method.amount_limits.get(currency)
    breach = limits and limits.describe_violation(Decimal(price.total_amount), currency)
    if breach:
        return QuoteRefusal(f"{price.total_amount} {currency} is {breach}", is_limit=True)
    return _make_quote(method, country, price, total_minor)


def _can_collect(method: PaymentMethod, price: Price) -> bool:
    if method.decimals is None:
        return True
    total = Decimal(price.total_amount)
    return to_smallest_unit(total, method.decimals[price.currency]) is not None


def can_represent_exactly(payment: Payment, currency: str, decimals: int) -> bool:
    """Return whether the amount can be paid exactly in a currency with this many decimals.

    Always true for a pegged token, because its amount is rounded up.
    """
    return currency != payment.currency or round_up(payment.amount, decimals) == payment.amount


def _make_quote(method: PaymentMethod, country: str, price: Price, total_minor: int) -> Quote:
    return Quote(
        payment_method_id=method.id,
        account_id=method.account_id,
        provider=method.provider,
        provider_name=method.provider_name,
        kind=method.kind,
        label=method.label,
        country=country,
        chain=method.chain,
        token=method.token,
        price=price,
        total_minor=total_minor,
        expected_token=method.expected_token,
        label_translations=method.label_translations,
    )
