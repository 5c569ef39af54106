"""The buyer's API routes, for which the checkout id is a capability."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payintent.checkout.context import CheckoutContext, get_checkout_context
from payintent.checkout.fields import checkout_fields, next_action_fields, quote_fields
from payintent.core import ids
from payintent.core.countries import COUNTRIES
from payintent.core.texts import check_email
from payintent.http.application import Handler
from payintent.http.bodies import read_json
from payintent.http.responses import json_response
from payintent.merchants.model import Merchant
from payintent.payment_sessions.open_session import SelectedSession
from payintent.payment_sessions.select_quote import QuoteSelection, select_quote
from payintent.payments import schemas
from payintent.payments import store as payment_store
from payintent.payments.cancel import cancel_by_buyer
from payintent.payments.expire import require_open_checkout
from payintent.payments.model import TERMINAL, Payment
from payintent.payments.store import PaymentSnapshot
from payintent.quotes.list_quotes import QuoteList, QuoteQuery, list_quotes
from payintent.runtime.json_format import format_timestamp
from payintent.webhooks import outbox_store as outbox

_SELECTION = msgspec.json.Decoder(QuoteSelection)


@dataclass(frozen=True, slots=True)
class CheckoutVisit:
    """A buyer's request for a checkout."""

    request: Request
    context: CheckoutContext
    snapshot: PaymentSnapshot

    @property
    def payment(self) -> Payment:
        return self.snapshot.payment

    @property
    def country(self) -> str | None:
        return self.context.viewers.viewer_country(self.request)

    @property
    def address(self) -> str | None:
        return self.context.viewers.viewer_address(self.request)

    async def merchant(self) -> Merchant:
        return (await self.context.merchants.get(self.payment.merchant_id)).merchant

    async def screen(self, email: str | None = None) -> None:
        """Screen the buyer; raise `FraudDeniedError` if a rule matches."""
        await self.context.fraud_screening.screen_checkout(
            self.payment, self.country, self.address, email
        )


def checkout_route(handler: Callable[[CheckoutVisit], Awaitable[Response]]) -> Handler:
    """Read the checkout of a request, limit the buyer's address and screen the buyer.

    Raises `RATE_LIMITED`, `CHECKOUT_NOT_FOUND` and `FraudDeniedError`.
    """

    @wraps(handler)
    async def respond(request: Request) -> Response:
        context = get_checkout_context(request)
        context.addresses.take(context.viewers.viewer_address(request))
        return await handler(await read_visit(request))

    return respond


async def read_visit(request: Request) -> CheckoutVisit:
    """Read the checkout of a request, also after a change, and screen the buyer."""
    context = get_checkout_context(request)
    checkout_id: str = request.path_params["checkout_id"]
    snapshot = await context.payment_lookup.find_checkout_payment(checkout_id)
    visit = CheckoutVisit(request, context, snapshot)
    await visit.screen()
    return visit


@checkout_route
async def get_checkout(visit: CheckoutVisit) -> Response:
    fields = await checkout_view(visit)
    if visit.country in COUNTRIES:
        fields["suggested_country"] = visit.country  # a hint only
    return json_response(fields)


@checkout_route
async def get_quotes(visit: CheckoutVisit) -> Response:
    country = visit.request.query_params.get("country")
    currency = visit.request.query_params.get("currency")
    quotes = await price_checkout(visit, country, currency)
    return json_response(
        {
            "checkout_id": visit.payment.checkout_id,
            "currency": currency or visit.payment.currency,
            "country": quotes.quote_country.country,
            "country_source": quotes.quote_country.source,
            "quotes": [quote_fields(quote) for quote in quotes.offers],
        }
    )


@checkout_route
async def post_quotes(visit: CheckoutVisit) -> Response:
    context = visit.context
    selection = await read_json(visit.request, _SELECTION, context.settings.body_bytes_max)
    selection.check()
    selected = await select_for_buyer(visit, selection)
    payment, session = selected.payment, selected.session
    snapshot = PaymentSnapshot(payment, session, selected.now)
    return json_response(
        {
            "checkout": await checkout_view(CheckoutVisit(visit.request, context, snapshot)),
            "quote": quote_fields(session.quote),
            "session": {
                "id": ids.format_id(ids.SESSION, session.id),
                "expires_at": format_timestamp(payment.expires_at),
            },
            "next_action": next_action_fields(payment, session, context.urls),
        }
    )


@checkout_route
async def post_cancel(visit: CheckoutVisit) -> Response:
    """`POST /checkout/{checkout_id}/cancel`: PENDING only; the merchant gets no event."""
    await cancel_checkout(visit)
    return json_response({"status": "cancelled"})


@checkout_route
async def patch_checkout(visit: CheckoutVisit) -> Response:
    context = visit.context
    body = await read_json(visit.request, schemas.EMAIL, context.settings.body_bytes_max)
    check_email(body.payer_email)
    await visit.screen(body.payer_email)
    await require_open_checkout(context.database, visit.snapshot)
    async with context.database.transaction() as tx:
        await payment_store.set_payer_emails(tx, {visit.payment.id: body.payer_email})
    return json_response(await checkout_view(await read_visit(visit.request)))


async def checkout_view(visit: CheckoutVisit) -> dict[str, Any]:
    payment, snapshot = visit.payment, visit.snapshot
    merchant, urls = await visit.merchant(), visit.context.urls
    fields = checkout_fields(payment, snapshot.session, merchant, snapshot.now, urls)
    fields["events_url"] = f"/v1/checkout/{payment.checkout_id}/events"
    if payment.status in TERMINAL:
        fields["merchant_told"] = await outbox.is_fully_delivered(
            visit.context.database, payment.id
        )
    return fields


async def price_checkout(
    visit: CheckoutVisit, country: str | None, currency: str | None
) -> QuoteList:
    """Price the methods of a checkout for the requested country or the viewer's."""
    context = visit.context
    query = QuoteQuery(
        restrictions=await context.policies.restrictions(),
        country=country,
        currency=currency,
        viewer_country=visit.country,
    )
    return await list_quotes(
        context.database, context.merchants, context.accounts, visit.snapshot, query
    )


async def select_for_buyer(visit: CheckoutVisit, selection: QuoteSelection) -> SelectedSession:
    """Screen the buyer again with the current facts, then select a quote."""
    if selection.payer_email is not None:
        await visit.screen(selection.payer_email)
    context, restrictions = visit.context, await visit.context.policies.restrictions()
    await context.fraud_screening.screen_selection(visit.payment, visit.address)
    return await select_quote(
        context.selection_context, visit.snapshot, selection, restrictions, visit.country
    )


async def cancel_checkout(visit: CheckoutVisit) -> None:
    """Cancel for the buyer; refused, like every write, if the checkout has ended."""
    await require_open_checkout(visit.context.database, visit.snapshot)
    async with visit.context.database.transaction() as tx:
        await cancel_by_buyer(tx, visit.payment.id)
