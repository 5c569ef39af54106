"""A buyer's request for a checkout, and actions that the API and the hosted page share."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from payintent.checkout.context import CheckoutContext, get_checkout_context
from payintent.checkout.fields import checkout_fields
from payintent.http.application import Handler
from payintent.merchants.model import Merchant
from payintent.payment_sessions.open_session import SelectedSession
from payintent.payment_sessions.select_quote import QuoteSelection, select_quote
from payintent.payments.cancel import cancel_by_buyer
from payintent.payments.expire import require_open_checkout
from payintent.payments.model import TERMINAL, Payment
from payintent.payments.store import PaymentSnapshot
from payintent.quotes.list_quotes import QuoteList, QuoteQuery, list_quotes
from payintent.webhooks import outbox_store


@dataclass(frozen=True, slots=True)
class CheckoutVisit:
    request: Request
    context: CheckoutContext
    snapshot: PaymentSnapshot

    @property
    def payment(self) -> Payment:
        return self.snapshot.payment

    @property
    def country(self) -> str | None:
        return self.context.viewers.get_viewer_country(self.request)

    @property
    def address(self) -> str | None:
        return self.context.viewers.get_viewer_address(self.request)

    async def merchant(self) -> Merchant:
        return (await self.context.merchants.get(self.payment.merchant_id)).merchant

    async def screen(self, email: str | None = None) -> None:
        """Screen the buyer; raise `FraudDeniedError` if a rule matches."""
        await self.context.fraud_screening.screen_checkout(
            self.payment, self.country, self.address, email
        )


def checkout_route(handler: Callable[[CheckoutVisit], Awaitable[Response]]) -> Handler:
    """Load the requested checkout, apply the rate limit and screen the buyer.

    Raises `RATE_LIMITED`, `CHECKOUT_NOT_FOUND` and `FraudDeniedError`.
    """

    @wraps(handler)
    async def respond(request: Request) -> Response:
        context = get_checkout_context(request)
        context.address_limiter.take_token(context.viewers.get_viewer_address(request))
        return await handler(await read_visit(request))

    return respond


async def read_visit(request: Request) -> CheckoutVisit:
    """Load the current state of the requested checkout, and screen the buyer."""
    context = get_checkout_context(request)
    checkout_id: str = request.path_params["checkout_id"]
    snapshot = await context.payment_lookup.find_checkout_payment(checkout_id)
    visit = CheckoutVisit(request, context, snapshot)
    await visit.screen()
    return visit


async def checkout_view(visit: CheckoutVisit) -> dict[str, Any]:
    payment, snapshot = visit.payment, visit.snapshot
    merchant, urls = await visit.merchant(), visit.context.urls
    fields = checkout_fields(payment, snapshot.session, merchant, snapshot.now, urls)
    fields["events_url"] = f"/v1/checkout/{payment.checkout_id}/events"
    if payment.status in TERMINAL:
        database = visit.context.database
        fields["merchant_told"] = await outbox_store.is_fully_delivered(database, payment.id)
    return fields


async def price_checkout(
    visit: CheckoutVisit, country: str | None, currency: str | None
) -> QuoteList:
    """List quotes for the requested country, defaulting to the viewer's country."""
    context = visit.context
    query = QuoteQuery(
        restrictions=await context.policies.get_restrictions(),
        country=country,
        currency=currency,
        viewer_country=visit.country,
    )
    return await list_quotes(
        context.database, context.merchants, context.accounts, visit.snapshot, query
    )


async def select_for_buyer(visit: CheckoutVisit, selection: QuoteSelection) -> SelectedSession:
    """Screen the buyer again, with the email address if there is one, and select a quote."""
    if selection.payer_email is not None:
        await visit.screen(selection.payer_email)
    context, restrictions = visit.context, await visit.context.policies.get_restrictions()
    await context.fraud_screening.screen_selection(visit.payment, visit.address)
    return await select_quote(
        context.selection_context, visit.snapshot, selection, restrictions, visit.country
    )


async def cancel_checkout(visit: CheckoutVisit) -> None:
    """Cancel the payment for the buyer; raise `RefusedError` if the checkout has ended."""
    await require_open_checkout(visit.context.database, visit.snapshot)
    async with visit.context.database.transaction() as tx:
        await cancel_by_buyer(tx, visit.payment.id)
