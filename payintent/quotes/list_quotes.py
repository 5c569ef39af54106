"""List a checkout's quotes with the operator's current tax rates."""

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
from payintent.quotes.model import QuoteCountry, make_quotes, resolve_quote_country


@dataclass(frozen=True, slots=True)
class QuoteList:
    quote_country: QuoteCountry
    offers: list[Quote]


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
    """Price every payment method of a checkout; raises if the checkout has ended.

    Methods of unavailable gateways are omitted. There are no quotes if the merchant is out of
    service.
    """
    await require_open_checkout(database, snapshot)
    payment = snapshot.payment
    setup = await merchants.get(payment.merchant_id)
    payable = setup.payable_without(await accounts.unavailable())
    _check_token(setup, query.currency)
    quote_country = resolve_quote_country(
        payment,
        setup.merchant,
        payable,
        query.country,
        query.viewer_country,
        query.restrictions,
    )
    merchant, rates = setup.merchant, setup.tax_rates
    return QuoteList(
        quote_country,
        make_quotes(payment, merchant, payable, quote_country, query.currency, rates),
    )


def _check_token(setup: MerchantSetup, currency: str | None) -> None:
    """Raise `UNSUPPORTED_CURRENCY` if `currency` is a token that no method supports.

    Outages are ignored: during an outage the list is empty, and the buyer may try again.
    """
    if currency not in TENDER or not TENDER[currency].crypto:
        return
    if not any(currency in (market.currencies or ()) for market in usable_markets(setup.methods)):
        raise RefusedError(
            ErrorCode.UNSUPPORTED_CURRENCY, f"this payment cannot be paid in {currency}"
        )
