"""Quotes of payment methods, with the operator's present tax rates."""

from collections.abc import Iterable
from dataclasses import dataclass

from payintent.domain.activation import is_in_service
from payintent.domain.merchant import Merchant, PaymentMethod
from payintent.domain.payment import Payment
from payintent.domain.quote import Quote
from payintent.domain.quoting import (
    QuoteCountry,
    make_quotes,
    resolve_quote_country,
    tax_rate_for,
    taxed_country,
)
from payintent.domain.restriction import Restrictions
from payintent.id_generator import IdGenerator
from payintent.payments.expire import require_open_checkout
from payintent.payments.gateway_accounts import GatewayAccounts
from payintent.payments.lookup import get_payment_merchant
from payintent.storage import payment_methods, tax_rates
from payintent.storage.database import Database, Executor
from payintent.storage.payments import PaymentSnapshot


async def price_methods(
    database: Executor,
    payment: Payment,
    merchant: Merchant,
    methods: Iterable[PaymentMethod],
    quote_country: QuoteCountry,
    currency: str | None,
) -> list[Quote]:
    """Price methods for a country."""
    taxed = taxed_country(merchant, quote_country)
    rate = tax_rate_for(payment, taxed, await tax_rates.list_tax_rates(database))
    return make_quotes(payment, merchant, methods, quote_country, currency, rate)


@dataclass(frozen=True, slots=True)
class QuoteList:
    """The quotes of a payment in one country."""

    place: QuoteCountry
    offers: list[Quote]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteQuery:
    """What quotes are requested for: the buyer's choices, and the viewer's country."""

    restrictions: Restrictions
    country: str | None = None
    currency: str | None = None
    viewer_country: str | None = None


async def list_quotes(
    database: Database,
    accounts: GatewayAccounts,
    id_generator: IdGenerator,
    snapshot: PaymentSnapshot,
    query: QuoteQuery,
) -> QuoteList:
    """Price every method for this checkout; raises where it has ended, as selecting would.

    A merchant out of service has no quotes, nor has a gateway that does not answer.
    """
    await require_open_checkout(database, id_generator, snapshot)
    merchant = await get_payment_merchant(database, snapshot.payment)
    methods = await accounts.apply_capabilities(
        await payment_methods.list_for_merchant(database, merchant.id)
    )
    usable = methods if is_in_service(merchant.activation) else []
    quote_country = resolve_quote_country(
        snapshot.payment, merchant, usable, query.country, query.viewer_country, query.restrictions
    )
    return QuoteList(
        quote_country,
        await price_methods(
            database, snapshot.payment, merchant, usable, quote_country, query.currency
        ),
    )
