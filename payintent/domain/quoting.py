"""The quotes of a payment in a country: which methods can pay it, and at what price."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from payintent.domain.countries import COUNTRIES, TENDERED, is_payable_in, require_supported_country
from payintent.domain.currencies import TENDER, accepted_currencies
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.merchant import Merchant, PaymentMethod
from payintent.domain.money import round_up, to_smallest_unit
from payintent.domain.payable import PayableMethods, payable_precision, usable_market
from payintent.domain.payment import Payment
from payintent.domain.price import Price, PriceRates, TaxCountry, TaxManager, make_price
from payintent.domain.quote import Quote
from payintent.domain.restriction import Restrictions


@dataclass(frozen=True, slots=True)
class QuoteCountry:
    """The country that quotes are for, and the rule that chose it.

    `source` is `query` (the buyer named it), `geo` (the viewer's), `default` (the merchant's) or
    `first` (of those that can pay). `crypto` tells whether tokens may be offered to this viewer.
    """

    country: str
    source: str
    crypto: bool = True


@dataclass(frozen=True, slots=True)
class QuoteRefusal:
    """Why a method is not offered in a currency, in words for operators."""

    reason: str
    is_limit: bool = False  # the total is outside the method's limits


def resolve_quote_country(
    payment: Payment,
    merchant: Merchant,
    payable: PayableMethods,
    requested: str | None,
    viewer: str | None,
    restrictions: Restrictions,
) -> QuoteCountry:
    """Choose the country that quotes are for, and tell whether tokens may be offered there.

    A country named by the query is taken whatever can be paid there. Without one it is the first of
    the viewer's, the merchant's and all others where one of the methods takes this payment.

    Raises `BAD_REQUEST` or `UNSUPPORTED_COUNTRY` where the query names no supported country.
    """
    if requested is not None:
        country = require_supported_country(requested)
        return QuoteCountry(country, "query", crypto=restrictions.allow_crypto(country, viewer))
    pegged = payment.include_pegged_assets
    accepted = accepted_currencies(payment.currency, pegged=pegged)
    for place in _candidates(merchant, viewer, restrictions):
        allowed = (code for code in accepted if place.crypto or not TENDER[code].crypto)
        if not set(payable.by_country[place.country]).isdisjoint(allowed):
            return place
    # Nothing can be paid anywhere now: take a country where it could be, so as not to refuse.
    return next(
        place
        for place in _candidates(merchant, viewer, restrictions)
        if place.source != "geo" and is_payable_in(place.country, payment.currency, pegged=pegged)
    )


def _candidates(
    merchant: Merchant, viewer: str | None, restrictions: Restrictions
) -> Iterator[QuoteCountry]:
    def candidate(country: str, source: str) -> QuoteCountry:
        return QuoteCountry(country, source, crypto=restrictions.allow_crypto(country, viewer))

    if viewer is not None and viewer in COUNTRIES:
        yield candidate(viewer, "geo")
    yield candidate(merchant.default_country, "default")
    for country in COUNTRIES:
        yield candidate(country, "first")


def make_quotes(
    payment: Payment,
    merchant: Merchant,
    payable: PayableMethods,
    quote_country: QuoteCountry,
    currency: str | None,
    tax_rate: Decimal,
) -> list[Quote]:
    """Price every payment method that applies, in the methods' order.

    Left out is what the merchant is not activated for, and tokens where they are restricted.

    Without `currency`, unavailable methods are left out; a `currency` that cannot pay this payment
    in this country is refused (`INVALID_CURRENCY`, `UNSUPPORTED_CURRENCY`).
    """
    country = quote_country.country
    currencies = [
        code
        for code in _currencies(payment, country, currency)
        if (quote_country.crypto or not TENDER[code].crypto)
        and merchant.market.includes(code, country)
    ]
    return [
        quote
        for method, reached in payable.methods
        for code in currencies
        if reached.includes(code, country)
        and isinstance(quote := _quote_or_refusal(payment, method, country, code, tax_rate), Quote)
    ]


def explain_method(
    payment: Payment,
    merchant: Merchant,
    method: PaymentMethod,
    quote_country: QuoteCountry,
    tax_rate: Decimal,
) -> list[tuple[str, Quote | QuoteRefusal]]:
    """Return the quote in each currency of a method that this payment accepts, or why it has none.

    The method is in use; its result has the quotes that `make_quotes` returns for it.
    """
    accepted = accepted_currencies(payment.currency, pegged=payment.include_pegged_assets)
    return [
        (code, _explain(payment, merchant, method, quote_country, code, tax_rate))
        for code in accepted
        if code in method.currencies
    ]


def _explain(
    payment: Payment,
    merchant: Merchant,
    method: PaymentMethod,
    quote_country: QuoteCountry,
    currency: str,
    tax_rate: Decimal,
) -> Quote | QuoteRefusal:
    country, reached = quote_country.country, usable_market(method)
    if currency not in TENDERED[country]:
        return QuoteRefusal(f"{currency} is not used in {country}")
    if TENDER[currency].crypto and not quote_country.crypto:
        return QuoteRefusal(f"crypto is restricted in {country}")
    if not merchant.market.includes(currency, country):
        return QuoteRefusal(f"the merchant is not activated for {currency} in {country}")
    if reached is None or not reached.includes(currency, country):
        if payable_precision(method, currency) is None:
            return QuoteRefusal(f"its gateway or chain does not take {currency}")
        return QuoteRefusal(f"the method, its account or its gateway is not for {country}")
    return _quote_or_refusal(payment, method, country, currency, tax_rate)


def taxed_country(merchant: Merchant, quote_country: QuoteCountry) -> str:
    chosen = merchant.tax_country is TaxCountry.SELECTION and quote_country.source == "query"
    return quote_country.country if chosen else merchant.default_country


def tax_rate_for(payment: Payment, country: str, rates: Mapping[str, Decimal]) -> Decimal:
    if payment.tax_manager is TaxManager.NONE:
        return Decimal(0)
    return rates.get(country, Decimal(0))


def _currencies(payment: Payment, country: str, requested: str | None) -> tuple[str, ...]:
    accepted = accepted_currencies(payment.currency, pegged=payment.include_pegged_assets)
    payable = tuple(code for code in accepted if code in TENDERED[country])
    if requested is None:
        return payable
    if requested not in TENDER:
        raise RefusedError(ErrorCode.INVALID_CURRENCY, f"currency {requested!r} is not known")
    if requested not in payable:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_CURRENCY,
            f"this payment cannot be paid in {requested} in {country}",
        )
    return (requested,)


def _quote_or_refusal(
    payment: Payment, method: PaymentMethod, country: str, currency: str, tax_rate: Decimal
) -> Quote | QuoteRefusal:
    """Price a method in a currency; refused if its gateway cannot collect that total."""
    decimals = payable_precision(method, currency)
    if decimals is None:
        return QuoteRefusal(f"its gateway or chain does not take {currency}")
    if not can_hold_exactly(payment, currency, decimals):
        return QuoteRefusal(f"{currency} has {decimals} decimals there, too few for the amount")
    rates = PriceRates(
        fee_mode=method.fee_mode,
        fee_rate=method.fee_rate,
        tax_rate=tax_rate,
        decimals=decimals,
    )
    price = make_price(payment.amount, currency, rates)
    total_minor = to_smallest_unit(Decimal(price.total_amount), decimals)
    if total_minor is None or not _collects(method, price):
        return QuoteRefusal(f"its gateway cannot collect {price.total_amount} {currency} exactly")
    if total_minor < method.token_minimum:
        return QuoteRefusal(f"{price.total_amount} {currency} is less than its contract takes")
    limits = method.amount_limits.get(currency)
    breach = limits and limits.describe_breach(Decimal(price.total_amount), currency)
    if breach:
        return QuoteRefusal(f"{price.total_amount} {currency} is {breach}", is_limit=True)
    return _quote(method, country, price, total_minor)


def _collects(method: PaymentMethod, price: Price) -> bool:
    if method.decimals is None:
        return True
    total = Decimal(price.total_amount)
    return to_smallest_unit(total, method.decimals[price.currency]) is not None


def can_hold_exactly(payment: Payment, currency: str, decimals: int) -> bool:
    """Tell whether a token can represent its own amount exactly; pegged amounts are rounded up."""
    return currency != payment.currency or round_up(payment.amount, decimals) == payment.amount


def _quote(method: PaymentMethod, country: str, price: Price, total_minor: int) -> Quote:
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
    )
