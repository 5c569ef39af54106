"""The buyer's API routes, for which the checkout id is a capability."""

from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from payintent.api import schemas
from payintent.api.checkout_fields import checkout_fields, next_action_fields, quote_fields
from payintent.api.etag import json_response
from payintent.api.request_body import read_json
from payintent.checkout.context import CheckoutContext, get_checkout_context
from payintent.domain import ids
from payintent.domain.countries import COUNTRIES
from payintent.domain.payment import TERMINAL
from payintent.domain.session import Session
from payintent.json_format import format_timestamp
from payintent.payments.cancel import cancel_by_buyer
from payintent.payments.expire import require_open_checkout
from payintent.payments.open_session import SelectedSession
from payintent.payments.quotes import QuoteList, QuoteQuery, list_quotes
from payintent.payments.select_quote import QuoteSelection, select_quote
from payintent.storage import outbox, payments
from payintent.storage.payments import PaymentSnapshot


async def get_checkout(request: Request) -> Response:
    context = get_checkout_context(request)
    fields = await checkout_view(context, await read_checkout(request))
    viewer = context.viewers.viewer_country(request)
    if viewer in COUNTRIES:
        fields["suggested_country"] = viewer  # a hint only
    return json_response(fields)


async def get_quotes(request: Request) -> Response:
    context = get_checkout_context(request)
    snapshot = await read_checkout(request)
    country = request.query_params.get("country")
    currency = request.query_params.get("currency")
    quotes = await price_checkout(context, snapshot, request, country, currency)
    return json_response(
        {
            "checkout_id": snapshot.payment.checkout_id,
            "currency": currency or snapshot.payment.currency,
            "country": quotes.place.country,
            "country_source": quotes.place.source,
            "quotes": [quote_fields(quote) for quote in quotes.offers],
        }
    )


async def post_quotes(request: Request) -> Response:
    context = get_checkout_context(request)
    snapshot = await read_checkout(request)
    body = await read_json(request, schemas.SELECT, context.settings.body_bytes_max)
    schemas.check_select(body)
    selected = await select_for_buyer(
        context,
        snapshot,
        request,
        QuoteSelection(
            payment_method_id=body.payment_method_id,
            currency=body.currency,
            country=body.country,
            viewer_country=context.viewers.viewer_country(request),
            restrictions=await context.policies.restrictions(),
            payer_email=body.payer_email,
            locale=body.locale,
            return_url=body.return_url,
            expected_total_amount=schemas.read_expected_total(body.expected_total_amount),
        ),
    )
    return json_response(await _selected_fields(context, selected))


async def post_cancel(request: Request) -> Response:
    """`POST /checkout/{checkout_id}/cancel`: PENDING only; the merchant gets no event."""
    context = get_checkout_context(request)
    await cancel_checkout(context, await read_checkout(request))
    return json_response({"status": "cancelled"})


async def patch_checkout(request: Request) -> Response:
    context = get_checkout_context(request)
    snapshot = await read_checkout(request)
    body = await read_json(request, schemas.EMAIL, context.settings.body_bytes_max)
    schemas.check_email(body.payer_email)
    await screen_buyer(context, snapshot, request, body.payer_email)
    await require_open_checkout(context.database, snapshot)
    async with context.database.transaction() as tx:
        await payments.set_payer_emails(tx, {snapshot.payment.id: body.payer_email})
    return json_response(await checkout_view(context, await reread_checkout(request)))


async def checkout_view(context: CheckoutContext, snapshot: PaymentSnapshot) -> dict[str, Any]:
    merchant = (await context.merchants.get(snapshot.payment.merchant_id)).merchant
    urls = context.urls
    fields = checkout_fields(snapshot.payment, snapshot.session, merchant, snapshot.now, urls)
    fields["events_url"] = f"/v1/checkout/{snapshot.payment.checkout_id}/events"
    if snapshot.payment.status in TERMINAL:
        fields["merchant_told"] = await outbox.is_fully_delivered(
            context.database, snapshot.payment.id
        )
    return fields


async def price_checkout(
    context: CheckoutContext,
    snapshot: PaymentSnapshot,
    request: Request,
    country: str | None,
    currency: str | None,
) -> QuoteList:
    """Price the methods of a checkout for the requested country or the viewer's."""
    query = QuoteQuery(
        restrictions=await context.policies.restrictions(),
        country=country,
        currency=currency,
        viewer_country=context.viewers.viewer_country(request),
    )
    return await list_quotes(
        context.database,
        context.merchants,
        context.accounts,
        snapshot,
        query,
    )


async def select_for_buyer(
    context: CheckoutContext, snapshot: PaymentSnapshot, request: Request, selection: QuoteSelection
) -> SelectedSession:
    """Screen the buyer again with the current facts, then select a quote."""
    if selection.payer_email is not None:
        await screen_buyer(context, snapshot, request, selection.payer_email)
    await context.fraud_screening.screen_selection(
        snapshot.payment, context.viewers.viewer_address(request)
    )
    return await select_quote(context.selection_context, snapshot, selection)


async def read_checkout(request: Request) -> PaymentSnapshot:
    """Read the checkout of a request, limit its address and screen the buyer.

    Raises `RATE_LIMITED`, `CHECKOUT_NOT_FOUND` and `FraudDeniedError`.
    """
    context = get_checkout_context(request)
    context.addresses.take(context.viewers.viewer_address(request))
    return await reread_checkout(request)


async def reread_checkout(request: Request) -> PaymentSnapshot:
    context = get_checkout_context(request)
    checkout_id: str = request.path_params["checkout_id"]
    snapshot = await context.payment_lookup.find_checkout_payment(checkout_id)
    await screen_buyer(context, snapshot, request)
    return snapshot


async def screen_buyer(
    context: CheckoutContext, snapshot: PaymentSnapshot, request: Request, email: str | None = None
) -> None:
    """Screen the buyer of a checkout; raise `FraudDeniedError` if a rule matches."""
    viewer, address = (
        context.viewers.viewer_country(request),
        context.viewers.viewer_address(request),
    )
    await context.fraud_screening.screen_checkout(snapshot.payment, viewer, address, email)


async def cancel_checkout(context: CheckoutContext, snapshot: PaymentSnapshot) -> None:
    """Cancel for the buyer; refused, like every write, if the checkout has ended."""
    await require_open_checkout(context.database, snapshot)
    async with context.database.transaction() as tx:
        await cancel_by_buyer(tx, snapshot.payment.id)


async def _selected_fields(context: CheckoutContext, selected: SelectedSession) -> dict[str, Any]:
    payment, session = selected.payment, selected.session
    return {
        "checkout": await checkout_view(context, PaymentSnapshot(payment, session, selected.now)),
        "quote": quote_fields(session.quote),
        "session": _session_fields(payment.expires_at, session),
        "next_action": next_action_fields(payment, session, context.urls),
    }


def _session_fields(expires_at: datetime, session: Session) -> dict[str, Any]:
    return {
        "id": ids.format_id(ids.SESSION, session.id),
        "expires_at": format_timestamp(expires_at),
    }
