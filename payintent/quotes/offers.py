"""Decide for each payment method whether it is offered for a payment, and if not, why.

Buyers see only the quotes, whereas operators also see the refusals. Each rule is therefore written
once, and returns a refusal with its reason.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from payintent.core.countries import TENDER_BY_COUNTRY
from payintent.core.money import TENDER, list_accepted_currencies, round_up, to_smallest_unit
from payintent.merchants.model import (
    Merchant,
    PaymentMethod,
    Price,
    Quote,
    TaxCountry,
    TaxManager,
    UnavailablePart,
    accepts_payments,
)
from payintent.merchants.payable import allows_country, payable_precision
from payintent.payments.model import Payment
from payintent.quotes.price import PriceRates, make_price


class RefusalKind(StrEnum):
    """The rules that can refuse a method, in the order in which they are applied."""

    # The method cannot be used at all, or at least not for this payment.
    MERCHANT_STATUS = "merchant_status"
    METHOD_DISABLED = "method_disabled"
    ACCOUNT_DISABLED = "account_disabled"
    PROVIDER_DISABLED = "provider_disabled"
    CHAIN_UNWATCHED = "chain_unwatched"
    ADAPTER_MISSING = "adapter_missing"
    GATEWAY_OUTAGE = "gateway_outage"
    PEGGED_EXCLUDED = "pegged_excluded"
    OTHER_CURRENCY = "other_currency"
    # The method cannot be used in this currency.
    GATEWAY_CURRENCY = "gateway_currency"
    TOKEN_UNAVAILABLE = "token_unavailable"  # noqa: S105 - a token on a chain
    PRECISION = "precision"
    # The currency or the method cannot be used in the country.
    COUNTRY_CURRENCY = "country_currency"
    CRYPTO_RESTRICTED = "crypto_restricted"
    MERCHANT_MARKET = "merchant_market"
    METHOD_COUNTRY = "method_country"
    ACCOUNT_COUNTRY = "account_country"
    # The total cannot be paid.
    INEXACT_TOTAL = "inexact_total"
    TOKEN_MINIMUM = "token_minimum"  # noqa: S105 - a token on a chain
    AMOUNT_LIMIT = "amount_limit"


_PART_REFUSALS: Mapping[UnavailablePart, tuple[RefusalKind, str]] = {
    UnavailablePart.ACCOUNT: (RefusalKind.ACCOUNT_DISABLED, "the account is disabled"),
    UnavailablePart.PROVIDER: (RefusalKind.PROVIDER_DISABLED, "the provider is disabled"),
    UnavailablePart.CHAIN: (
        RefusalKind.CHAIN_UNWATCHED,
        "the chain is not watched; see `chain list`",
    ),
    UnavailablePart.ADAPTER: (
        RefusalKind.ADAPTER_MISSING,
        "the gateway's adapter is not installed",
    ),
    UnavailablePart.OUTAGE: (
        RefusalKind.GATEWAY_OUTAGE,
        "the gateway is unavailable; see `provider health`",
    ),
}


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
    kind: RefusalKind
    reason: str  # why the method is not offered; shown to operators


@dataclass(frozen=True, slots=True)
class MethodOffer:
    """A method's quote in a currency, or the reason why it is not offered."""

    method: PaymentMethod
    currency: str | None  # None if the refusal applies to every currency
    result: Quote | QuoteRefusal


@dataclass(frozen=True, slots=True)
class QuoteTerms:
    """The payment and the merchant's configuration that methods are judged against."""

    payment: Payment
    merchant: Merchant
    tax_rates: Mapping[str, Decimal]  # by country
    currencies: tuple[str, ...]  # in which the payment may be paid


def make_terms(
    payment: Payment,
    merchant: Merchant,
    tax_rates: Mapping[str, Decimal],
    currency: str | None = None,
) -> QuoteTerms:
    """Return terms for every currency in which the payment may be paid, or for `currency` only."""
    codes = list_accepted_currencies(payment.currency, pegged=payment.include_pegged_assets)
    if currency is not None:
        codes = tuple(code for code in codes if code == currency)
    return QuoteTerms(payment, merchant, tax_rates, codes)


def judge_methods(
    terms: QuoteTerms, methods: Iterable[PaymentMethod], quote_country: QuoteCountry
) -> Iterator[MethodOffer]:
    """Judge each method in each currency of the terms, in order."""
    for method in methods:
        refusal = find_method_refusal(terms, method)
        if refusal is not None:
            yield MethodOffer(method, None, refusal)
            continue
        for code in terms.currencies:
            if code in method.currencies:
                refusal = find_currency_refusal(terms, method, code)
                result = refusal or quote_in_country(terms, method, code, quote_country)
                yield MethodOffer(method, code, result)


def find_method_refusal(terms: QuoteTerms, method: PaymentMethod) -> QuoteRefusal | None:
    """Return why a method is not offered in any currency or country, or None."""
    activation = terms.merchant.activation
    if not accepts_payments(activation):
        return QuoteRefusal(RefusalKind.MERCHANT_STATUS, f"the merchant is {activation}")
    if not method.enabled:
        return QuoteRefusal(RefusalKind.METHOD_DISABLED, "the method is disabled")
    if not method.account_enabled:
        part = method.unavailable_part or UnavailablePart.ACCOUNT
        return QuoteRefusal(*_PART_REFUSALS[part])
    if not any(code in method.currencies for code in terms.currencies):
        return _refuse_currencies(terms.payment, method)
    return None


def _refuse_currencies(payment: Payment, method: PaymentMethod) -> QuoteRefusal:
    pegged_codes = list_accepted_currencies(payment.currency, pegged=True)
    tokens = [code for code in pegged_codes if code in method.currencies]
    if tokens:
        reason = f"the payment excludes {', '.join(tokens)} (`include_pegged_assets` is false)"
        return QuoteRefusal(RefusalKind.PEGGED_EXCLUDED, reason)
    reason = (
        f"the method does not accept {payment.currency}; it accepts {', '.join(method.currencies)}"
    )
    return QuoteRefusal(RefusalKind.OTHER_CURRENCY, reason)


def find_currency_refusal(
    terms: QuoteTerms, method: PaymentMethod, currency: str
) -> QuoteRefusal | None:
    """Return why a method is not offered in a currency in any country, or None."""
    decimals = payable_precision(method, currency)
    if decimals is None and method.token is not None and method.token_decimals is None:
        reason = f"{method.token} is not available on {method.chain}"
        return QuoteRefusal(RefusalKind.TOKEN_UNAVAILABLE, reason)
    if decimals is None:
        reason = f"the gateway does not support {currency}"
        return QuoteRefusal(RefusalKind.GATEWAY_CURRENCY, reason)
    if not can_represent_exactly(terms.payment, currency, decimals):
        reason = f"this method supports at most {decimals} decimals in {currency}"
        return QuoteRefusal(RefusalKind.PRECISION, reason)
    return None


def quote_in_country(
    terms: QuoteTerms, method: PaymentMethod, currency: str, quote_country: QuoteCountry
) -> Quote | QuoteRefusal:
    """Return a method's quote in a country, or its refusal. The currency must not be refused."""
    country = quote_country.country
    refusal = _find_country_refusal(terms, method, currency, quote_country)
    if refusal is not None:
        return refusal
    tax_country = choose_tax_country(terms.merchant, quote_country)
    tax_rate = get_tax_rate(terms.payment, tax_country, terms.tax_rates)
    return _quote_total(terms.payment, method, country, currency, tax_rate)


def _find_country_refusal(
    terms: QuoteTerms, method: PaymentMethod, currency: str, quote_country: QuoteCountry
) -> QuoteRefusal | None:
    country = quote_country.country
    if currency not in TENDER_BY_COUNTRY[country]:
        reason = f"{currency} is not used in {country}"
        return QuoteRefusal(RefusalKind.COUNTRY_CURRENCY, reason)
    if TENDER[currency].is_crypto and not quote_country.crypto:
        return QuoteRefusal(RefusalKind.CRYPTO_RESTRICTED, f"crypto is restricted in {country}")
    if not terms.merchant.market.includes(currency, country):
        reason = f"the merchant is not activated for {currency} in {country}"
        return QuoteRefusal(RefusalKind.MERCHANT_MARKET, reason)
    if not allows_country(method.countries, country):
        reason = f"the method or its gateway is not available in {country}"
        return QuoteRefusal(RefusalKind.METHOD_COUNTRY, reason)
    if not allows_country(method.account_countries, country):
        reason = f"the account is not available in {country}"
        return QuoteRefusal(RefusalKind.ACCOUNT_COUNTRY, reason)
    return None


def choose_tax_country(merchant: Merchant, quote_country: QuoteCountry) -> str:
    is_selected = merchant.tax_country is TaxCountry.SELECTION and quote_country.source == "query"
    return quote_country.country if is_selected else merchant.default_country


def get_tax_rate(payment: Payment, country: str, rates: Mapping[str, Decimal]) -> Decimal:
    return Decimal(0) if payment.tax_manager is TaxManager.NONE else rates.get(country, Decimal(0))


def _quote_total(
    payment: Payment, method: PaymentMethod, country: str, currency: str, tax_rate: Decimal
) -> Quote | QuoteRefusal:
    decimals = payable_precision(method, currency)
    assert decimals is not None  # noqa: S101 - checked by `find_currency_refusal`
    rates = PriceRates(
        fee_mode=method.fee_mode,
        fee_rate=method.fee_rate,
        tax_rate=tax_rate,
        decimals=decimals,
    )
    price = make_price(payment.amount, currency, rates)
    total_minor = to_smallest_unit(Decimal(price.total_amount), decimals)
    if total_minor is None or not _can_collect(method, price):
        reason = f"the gateway cannot collect {price.total_amount} {currency} exactly"
        return QuoteRefusal(RefusalKind.INEXACT_TOTAL, reason)
    if total_minor < method.token_minimum:
        reason = f"{price.total_amount} {currency} is below the contract's minimum"
        return QuoteRefusal(RefusalKind.TOKEN_MINIMUM, reason)
    limits = method.amount_limits.get(currency)
    breach = limits and limits.describe_violation(Decimal(price.total_amount), currency)
    if breach:
        reason = f"{price.total_amount} {currency} is {breach}"
        return QuoteRefusal(RefusalKind.AMOUNT_LIMIT, reason)
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
