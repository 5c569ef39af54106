"""List the quotes of a checkout."""

from dataclasses import dataclass

from payintent.core.errors import ErrorCode, RefusedError
from payintent.core.money import TENDER
from payintent.db.database import Database
from payintent.gateway_accounts.accounts import GatewayAccounts
from payintent.merchants.model import Quote
from payintent.merchants.payable import Restrictions, usable_markets
from payintent.payments.expire import require_open_checkout
from payintent.payments.store import PaymentSnapshot
from payintent.quotes.merchant_cache import MerchantCache, MerchantSetup
from payintent.quotes.model import make_quotes, resolve_quote_country
from payintent.quotes.offers import QuoteCountry


@dataclass(frozen=True, slots=True)
class QuoteList:
    quote_country: QuoteCountry
    quotes: list[Quote]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteQuery:
    restrictions: Restrictions
    country: str | None = None
    currency: str | None = None
    viewer_country: str | None = None


async def list_quotes(
    database: Database,
    merchants: MerchantCache,
    accounts: GatewayAccounts,
    snapshot: PaymentSnapshot,
    query: QuoteQuery,
) -> QuoteList:
    """Return a quote for each payment method of a checkout, at current tax rates.

    Methods of unavailable gateways are omitted. The list is empty if the merchant does not accept
    payments. Raises `CHECKOUT_EXPIRED` or `INVALID_CHECKOUT_STATE` if the checkout has ended.
    """
    await require_open_checkout(database, snapshot)
    payment = snapshot.payment
    setup = await merchants.get(payment.merchant_id)
    unavailable_ids = await accounts.get_unavailable_ids()
    _require_supported_token(setup, query.currency)
    quote_country = resolve_quote_country(
        payment,
        setup.merchant,
        setup.get_payable_methods(unavailable_ids),
        query.country,
        query.viewer_country,
        query.restrictions,
    )
    methods = setup.get_methods_during_outage(unavailable_ids)
    merchant, rates = setup.merchant, setup.tax_rates
    return QuoteList(
        quote_country,
        make_quotes(payment, merchant, methods, quote_country, query.currency, rates),
    )


def _require_supported_token(setup: MerchantSetup, currency: str | None) -> None:
    """Raise `UNSUPPORTED_CURRENCY` if `currency` is a token that no method supports.

    Gateway outages are ignored, because the buyer can try again later.
    """
    if currency not in TENDER or not TENDER[currency].is_crypto:
        return
    if not any(currency in (market.currencies or ()) for market in usable_markets(setup.methods)):
        raise RefusedError(
            ErrorCode.UNSUPPORTED_CURRENCY, f"this payment cannot be made in {currency}"
        )
