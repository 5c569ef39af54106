"""Prices of payment methods, with the operator's tax rates of the moment."""

from collections.abc import Iterable

from payintent.domain.merchant import Merchant, PaymentMethod
from payintent.domain.payment import Payment
from payintent.domain.quoting import QuoteCountry, make_quotes, tax_rate_for, taxed_country
from payintent.domain.session import Quote
from payintent.storage import tax_rates
from payintent.storage.database import Executor


async def price_methods(
    database: Executor,
    payment: Payment,
    merchant: Merchant,
    methods: Iterable[PaymentMethod],
    quote_country: QuoteCountry,
    currency: str | None,
) -> list[Quote]:
    """Price methods for a place."""
    taxed = taxed_country(merchant, quote_country)
    rate = tax_rate_for(payment, taxed, await tax_rates.list_tax_rates(database))
    return make_quotes(payment, merchant, methods, quote_country, currency, rate)
