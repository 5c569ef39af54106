"""API routes for buyers, authorized only by the checkout id."""

import msgspec
from starlette.responses import Response

from payintent.checkout import visits
from payintent.checkout.fields import next_action_fields, quote_fields
from payintent.checkout.visits import CheckoutVisit
from payintent.core import ids
from payintent.core.countries import COUNTRIES
from payintent.core.texts import check_email
from payintent.http.bodies import read_json
from payintent.http.responses import json_response
from payintent.payment_sessions.select_quote import QuoteSelection
from payintent.payments import schemas
from payintent.payments import store as payment_store
from payintent.payments.expire import require_open_checkout
from payintent.payments.store import PaymentSnapshot
from payintent.runtime.json_format import format_timestamp

_SELECTION = msgspec.json.Decoder(QuoteSelection)


@visits.checkout_route
async def get_checkout(visit: CheckoutVisit) -> Response:
    fields = await visits.checkout_view(visit)
    if visit.country in COUNTRIES:
        fields["suggested_country"] = visit.country
    return json_response(fields)


@visits.checkout_route
async def get_quotes(visit: CheckoutVisit) -> Response:
    country = visit.request.query_params.get("country")
    currency = visit.request.query_params.get("currency")
    quote_list = await visits.price_checkout(visit, country, currency)
    return json_response(
        {
            "checkout_id": visit.payment.checkout_id,
            "currency": currency or visit.payment.currency,
            "country": quote_list.quote_country.country,
            "country_source": quote_list.quote_country.source,
            "quotes": [quote_fields(quote) for quote in quote_list.quotes],
        }
    )


@visits.checkout_route
async def post_quotes(visit: CheckoutVisit) -> Response:
    context = visit.context
    selection = await read_json(visit.request, _SELECTION, context.settings.body_bytes_max)
    selection.check()
    selected = await visits.select_for_buyer(visit, selection)
    payment, session = selected.payment, selected.session
    snapshot = PaymentSnapshot(payment, session, selected.now)
    return json_response(
        {
            "checkout": await visits.checkout_view(CheckoutVisit(visit.request, context, snapshot)),
            "quote": quote_fields(session.quote),
            "session": {
                "id": ids.format_id(ids.SESSION, session.id),
                "expires_at": format_timestamp(payment.expires_at),
            },
            "next_action": next_action_fields(payment, session, context.urls),
        }
    )


@visits.checkout_route
async def post_cancel(visit: CheckoutVisit) -> Response:
    """`POST /checkout/{checkout_id}/cancel`: cancel a PENDING payment; no webhook is sent."""
    await visits.cancel_checkout(visit)
    return json_response({"status": "cancelled"})


@visits.checkout_route
async def patch_checkout(visit: CheckoutVisit) -> Response:
    context = visit.context
    body = await read_json(visit.request, schemas.EMAIL_DECODER, context.settings.body_bytes_max)
    check_email(body.payer_email)
    await visit.screen(body.payer_email)
    await require_open_checkout(context.database, visit.snapshot)
    async with context.database.transaction() as tx:
        await payment_store.set_payer_emails(tx, {visit.payment.id: body.payer_email})
    return json_response(await visits.checkout_view(await visits.read_visit(visit.request)))
