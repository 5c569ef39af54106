"""Which ways to pay a payment has in a country, and at what price."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from payintent.domain.errors import Code, Refused
from payintent.domain.market import (
    COUNTRIES,
    TENDER,
    TENDERED,
    accepted_currencies,
    payable_in,
)
from payintent.domain.merchant import Market, Merchant, PaymentMethod
from payintent.domain.money import round_up, to_smallest
from payintent.domain.payment import Payment
from payintent.domain.quote import Quote, Tariff, TaxManager, make_quote
from payintent.domain.restriction import Restrictions
from payintent.domain.session import Offer


@dataclass(frozen=True, slots=True)
class Place:
    """The country that quotes are for, and how we came to it: `query`, `geo` or `default`.

    `crypto` tells whether tokens may be offered there, to this viewer.
    """

    country: str
    source: str
    crypto: bool = True


def resolve_place(
    payment: Payment,
    merchant: Merchant,
    asked: str | None,
    viewer: str | None,
    restrictions: Restrictions,
) -> Place:
    """Find where quotes are for, and whether tokens may be offered there.

    Refused (`BAD_REQUEST`, `UNSUPPORTED_COUNTRY`) where the query names no country of ours.
    """
    place = resolve_country(payment, merchant, asked, viewer)
    return replace(place, crypto=restrictions.allow_crypto(place.country, viewer))


def resolve_country(
    payment: Payment, merchant: Merchant, asked: str | None, viewer: str | None
) -> Place:
    """Find the country of the quotes: the query's, the viewer's, the merchant's, or the first."""
    if asked is not None:
        return Place(checked_country(asked), "query")
    if viewer is not None and viewer in COUNTRIES:
        return Place(viewer, "geo")
    pegged = payment.include_pegged_assets
    candidates = [
        code
        for code in (merchant.default_country, *COUNTRIES)
        if payable_in(code, payment.currency, pegged=pegged)
    ]
    served = (code for code in candidates if _serves(merchant.market, code, payment))
    return Place(next(served, candidates[0]), "default")


def checked_country(code: str) -> str:
    """Accept one of the 53 codes of spec section 2.5, upper case only."""
    if len(code) != 2:  # noqa: PLR2004 - ISO 3166-1 alpha-2
        raise Refused(Code.BAD_REQUEST, "country must have two letters")
    if code not in COUNTRIES:
        raise Refused(Code.UNSUPPORTED_COUNTRY, f"country {code!r} is not supported")
    return code


def offers(
    payment: Payment,
    merchant: Merchant,
    methods: Iterable[PaymentMethod],
    place: Place,
    currency: str | None,
    tax_rate: Decimal,
) -> list[Offer]:
    """Price every way to pay, in the methods' order.

    Left out is what the merchant is not activated for, and tokens where they are restricted.

    Without `currency` whatever cannot be had is left out; with one that this payment cannot be
    paid with in this country it is refused (`INVALID_CURRENCY`, `UNSUPPORTED_CURRENCY`).
    """
    country = place.country
    currencies = [
        code
        for code in _currencies(payment, country, currency)
        if (place.crypto or not TENDER[code].crypto) and merchant.market.includes(code, country)
    ]
    return [
        offer
        for method in methods
        if method.enabled and method.account_enabled
        for code in currencies
        if method.takes(code, country)
        and (offer := _offer(payment, method, country, code, tax_rate)) is not None
    ]


def tax_rate_for(payment: Payment, country: str, rates: Mapping[str, Decimal]) -> Decimal:
    """Give the tax rate that applies where this service manages tax, else zero."""
    if payment.tax_manager is TaxManager.NONE:
        return Decimal(0)
    return rates.get(country, Decimal(0))


def _serves(market: Market, country: str, payment: Payment) -> bool:
    """Tell whether the merchant was activated for any way to pay this there."""
    accepted = accepted_currencies(payment.currency, pegged=payment.include_pegged_assets)
    return any(code in TENDERED[country] and market.includes(code, country) for code in accepted)


def _currencies(payment: Payment, country: str, asked: str | None) -> tuple[str, ...]:
    accepted = accepted_currencies(payment.currency, pegged=payment.include_pegged_assets)
    payable = tuple(code for code in accepted if code in TENDERED[country])
    if asked is None:
        return payable
    if asked not in TENDER:
        raise Refused(Code.INVALID_CURRENCY, f"currency {asked!r} is not known")
    if asked not in payable:
        raise Refused(
            Code.UNSUPPORTED_CURRENCY, f"this payment cannot be paid in {asked} in {country}"
        )
    return (asked,)


def _offer(
    payment: Payment, method: PaymentMethod, country: str, currency: str, tax_rate: Decimal
) -> Offer | None:
    decimals = decimals_of(method, currency)
    if decimals is None or not holds_exactly(payment, currency, decimals):
        return None
    tariff = Tariff(
        fee_mode=method.fee_mode,
        fee_rate=method.fee_rate,
        tax_rate=tax_rate,
        decimals=decimals,
    )
    quote = make_quote(payment.amount, currency, tariff)
    total_minor = to_smallest(Decimal(quote.total_amount), decimals)
    if total_minor is None or total_minor < method.token_minimum:
        return None
    if not _collects(method, quote):
        return None
    return _offered(method, country, quote, total_minor)


def _collects(method: PaymentMethod, quote: Quote) -> bool:
    """Tell whether the gateway takes the currency, and can hold the total exactly."""
    if method.decimals is None:
        return True
    decimals = method.decimals.get(quote.currency)
    return decimals is not None and to_smallest(Decimal(quote.total_amount), decimals) is not None


def decimals_of(method: PaymentMethod, currency: str) -> int | None:
    """Give the decimals that a method counts in: a token's on its chain, else the currency's.

    `None` where the token is not taken on its chain.
    """
    if method.token is not None:
        return method.token_decimals
    return TENDER[currency].amount_decimals


def holds_exactly(payment: Payment, currency: str, decimals: int) -> bool:
    """Tell whether a token can hold what was asked in it; pegged amounts are rounded up."""
    return currency != payment.currency or round_up(payment.amount, decimals) == payment.amount


def _offered(method: PaymentMethod, country: str, quote: Quote, total_minor: int) -> Offer:
    return Offer(
        payment_method_id=method.id,
        account_id=method.account_id,
        provider=method.provider,
        provider_name=method.provider_name,
        kind=method.kind,
        label=method.label,
        country=country,
        chain=method.chain,
        token=method.token,
        quote=quote,
        total_minor=total_minor,
        expected_token=method.expected_token,
    )
