"""What else is a merchant's own: refunds, cases, events, keys, the catalog and the last calls."""

from urllib.parse import urlencode
from uuid import UUID

from starlette.responses import Response

from payintent.api.cases import case_fields, read_case_filter
from payintent.api.pagination import read_id_cursor, write_id_cursor
from payintent.domain import ids
from payintent.domain.api_key import merchant_prefix
from payintent.domain.case import CaseKind
from payintent.domain.catalog import list_payable
from payintent.domain.countries import COUNTRIES, COUNTRY_NAMES
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.member import MemberRight
from payintent.domain.merchant import Market
from payintent.operations.merchant_actions import member_actor, replay_own_event, revoke_own_key
from payintent.operations.validation import require_merchant
from payintent.payments.serialization import refund_fields
from payintent.portal.rendering import render_portal_page
from payintent.portal.story import requester
from payintent.portal.visits import Visit, fields_of, member_page, redirect
from payintent.storage import (
    api_calls,
    api_keys,
    merchant_cases,
    merchant_events,
    merchant_refunds,
    outbox,
)
from payintent.storage.cases import STATUSES
from payintent.storage.delivery_list import DeliveryFilter, list_deliveries

_LISTED = 25
_CALLS = 100
_KEYS_MAX = 1_000


@member_page()
async def get_portal_refunds(visit: Visit) -> Response:
    """`GET /merchant/refunds?cursor=`: refunds of the merchant's payments, newest first."""
    before = read_id_cursor(visit.request.query_params.get("cursor"))
    found = await merchant_refunds.page(
        visit.context.database, visit.merchant_id, before, _LISTED + 1
    )
    rows = [
        refund_fields(refund) | {"by": requester(refund.requested_by), "at": refund.created_at}
        for refund in found[:_LISTED]
    ]
    more = write_id_cursor(found[_LISTED - 1].id) if len(found) > _LISTED else None
    fields = fields_of(
        visit,
        "Refunds",
        rows=rows,
        more=more and urlencode({"cursor": more}),
    )
    return render_portal_page(visit.request, "refunds.html", fields)


@member_page()
async def get_portal_cases(visit: Visit) -> Response:
    """`GET /merchant/cases?status=&kind=&cursor=`: cases, as `GET /cases` gives them."""
    query = {name: value for name, value in visit.request.query_params.items() if value}
    wanted = read_case_filter(query, visit.merchant_id)
    found = await merchant_cases.page(visit.context.database, wanted, _LISTED + 1)
    more = None
    if len(found) > _LISTED:
        more = urlencode(query | {"cursor": write_id_cursor(found[_LISTED - 1].id)})
    fields = fields_of(
        visit,
        "Cases",
        rows=[case_fields(case) for case in found[:_LISTED]],
        more=more,
        filters={name: query.get(name, "") for name in ("status", "kind")},
        statuses=STATUSES,
        kinds=list(CaseKind),
    )
    return render_portal_page(visit.request, "cases.html", fields)


@member_page()
async def get_portal_events(visit: Visit) -> Response:
    """`GET /merchant/events?state=&cursor=`: events with the state of their deliveries."""
    query = {name: value for name, value in visit.request.query_params.items() if value}
    state = query.get("state")
    if state is not None and state not in outbox.STATES:
        raise RefusedError(ErrorCode.BAD_REQUEST, "There is no such state.")
    wanted = DeliveryFilter(
        merchant_id=visit.merchant_id, state=state, before=read_id_cursor(query.get("cursor"))
    )
    found = await list_deliveries(visit.context.database, wanted, _LISTED + 1)
    more = None
    if len(found) > _LISTED:
        more = urlencode(query | {"cursor": write_id_cursor(found[_LISTED - 1].event_id)})
    rows = [(event, ids.format_id(ids.PAYMENT, event.payment_id)) for event in found[:_LISTED]]
    fields = fields_of(
        visit,
        "Events",
        rows=rows,
        more=more,
        state=state or "",
        states=outbox.STATES,
    )
    return render_portal_page(visit.request, "events.html", fields)


@member_page()
async def get_event(visit: Visit) -> Response:
    event_id = _event_id(visit)
    database = visit.context.database
    event = await merchant_events.get(database, visit.merchant_id, event_id)
    delivery = await merchant_events.get_delivery(database, visit.merchant_id, event_id)
    if event is None or delivery is None:
        raise _no_event()
    fields = fields_of(
        visit,
        "Event",
        event=event,
        delivery=delivery,
        payment_id=ids.format_id(ids.PAYMENT, event.payment_id),
        attempts=await outbox.list_attempts(database, event.id),
        replayed="replayed" in visit.request.query_params,
    )
    return render_portal_page(visit.request, "event.html", fields)


@member_page(MemberRight.REPLAY)
async def post_replay(visit: Visit) -> Response:
    """`POST /merchant/events/{event_id}/replay`: sends it again, as the operator's replay does."""
    event_id = _event_id(visit)
    actor = member_actor(visit.merchant_id, visit.session.email)
    await replay_own_event(visit.context.operation_context, visit.merchant_id, actor, event_id)
    return redirect(f"/merchant/events/{event_id}?replayed=1")


@member_page(MemberRight.SEE_KEYS)
async def get_keys(visit: Visit) -> Response:
    database = visit.context.database
    keys = await api_keys.list_keys(database, visit.merchant_id, _KEYS_MAX)
    merchant = await require_merchant(database, visit.merchant_id)
    fields = fields_of(visit, "API keys", keys=keys, prefix=merchant_prefix(merchant.livemode))
    return render_portal_page(visit.request, "keys.html", fields)


@member_page(MemberRight.REVOKE_KEYS)
async def post_revoke_key(visit: Visit) -> Response:
    public_id: str = visit.request.path_params["public_id"]
    actor = member_actor(visit.merchant_id, visit.session.email)
    await revoke_own_key(visit.context.operation_context, visit.merchant_id, actor, public_id)
    return redirect("/merchant/keys")


@member_page()
async def get_catalog_preview(visit: Visit) -> Response:
    """`GET /merchant/catalog?country=`: what a buyer in a country can pay with, and how."""
    wanted = visit.request.query_params.get("country") or None
    if wanted is not None and wanted not in COUNTRIES:
        raise RefusedError(ErrorCode.BAD_REQUEST, "There is no such country.")
    context = visit.context
    setup = await context.merchants.get(visit.merchant_id)
    restrictions = await context.policies.restrictions()
    reached = tuple(market for _, market in setup.payable.methods)
    shown = list_payable(setup.merchant.market, reached, restrictions, None)
    country = wanted or next((code for code, _ in shown), "")
    there = dict(list_payable(setup.merchant.market, reached, restrictions, country))
    has_crypto = restrictions.allow_crypto(country, country)
    fields = fields_of(
        visit,
        "Catalog",
        country=country,
        countries=[(code, COUNTRY_NAMES[code]) for code, _ in shown],
        currencies=there.get(country, []),
        methods=[
            method
            for method, market in setup.payable.methods
            if _reaches(market, country) and (method.token is None or has_crypto)
        ],
        has_crypto=has_crypto,
    )
    return render_portal_page(visit.request, "catalog.html", fields)


@member_page(MemberRight.SEE_CALLS)
async def get_calls(visit: Visit) -> Response:
    """`GET /merchant/calls?failed=`: the last hundred API calls, or those that were refused."""
    failed = bool(visit.request.query_params.get("failed"))
    context = visit.context
    calls = await api_calls.list_last(context.database, visit.merchant_id, _CALLS, failed=failed)
    fields = fields_of(
        visit,
        "API calls",
        calls=calls,
        failed=failed,
        days=context.settings.api_calls_days,
    )
    return render_portal_page(visit.request, "calls.html", fields)


def _reaches(market: Market, country: str) -> bool:
    return market.countries is None or country in market.countries


def _event_id(visit: Visit) -> UUID:
    try:
        return UUID(visit.request.path_params["event_id"])
    except ValueError:
        raise _no_event() from None


def _no_event() -> RefusedError:
    return RefusedError(ErrorCode.NOT_FOUND, "no such event")
