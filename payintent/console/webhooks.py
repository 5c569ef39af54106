"""The pages of webhooks: endpoints and how they do, events, one event with its attempts."""

from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from payintent.console.access import signed_in
from payintent.console.context import get_console_context
from payintent.console.listing import ROWS, link_operation, other_page, read_list, read_query, typed
from payintent.console.page_action import offer
from payintent.console.payment_story import pretty
from payintent.console.rendering import render
from payintent.domain.errors import NotFoundError
from payintent.operations.webhooks import (
    ListDeliveries,
    ListEndpoints,
    ReplayEvent,
    ReplayMissedEvents,
    ShowEvent,
)
from payintent.storage.database import current_time
from payintent.storage.endpoint_list import COUNTED_MAX, EndpointRecord

_STATES = ("pending", "delivered", "dead", "skipped")
_HALF = 0.5
_LATE_S = 300
_EVER = "2000-01-01T00:00:00"  # before all events


async def get_webhooks(request: Request) -> Response:
    session = await signed_in(request)
    wanted = read_query(request, ListEndpoints, limit=ROWS)
    found = await read_list(request, session, wanted)
    following = found[-1].merchant_id if len(found) == ROWS else None
    return render(
        request,
        "webhooks.html",
        typed=typed(request),
        endpoints=[(endpoint, health(endpoint)) for endpoint in found],
        now=await current_time(get_console_context(request).reading),
        counted_max=COUNTED_MAX,
        replay=link_operation(session, ReplayMissedEvents),
        replay_all=link_operation(session, ReplayMissedEvents, since=_EVER),
        following=following and other_page(request, after=following),
    )


async def get_webhook_events(request: Request) -> Response:
    session = await signed_in(request)
    wanted = read_query(request, ListDeliveries, limit=ROWS)
    found = await read_list(request, session, wanted)
    older = other_page(request, before=found[-1].event_id) if len(found) == ROWS else None
    query = typed(request)
    same = {name: query.get(name) or None for name in ("merchant_id", "since", "until")}
    return render(
        request,
        "events.html",
        typed=query,
        deliveries=found,
        states=_STATES,
        now=await current_time(get_console_context(request).reading),
        replay=link_operation(session, ReplayMissedEvents, **same),
        older=older,
    )


async def get_webhook_event(request: Request) -> Response:
    session = await signed_in(request)
    try:
        event_id = UUID(request.path_params["event_id"])
    except ValueError:
        raise NotFoundError("no such event") from None
    shown = await read_list(request, session, ShowEvent(event_id=event_id))
    href = link_operation(session, ReplayEvent, event_id=event_id)
    return render(
        request,
        "event.html",
        event=shown.event,
        body=pretty(shown.event.body),
        attempts=shown.attempts[::-1],
        actions=offer([("Send it again", href)]),
    )


def health(endpoint: EndpointRecord) -> tuple[str, str]:
    if endpoint.callback_url is None:
        return "none", ""
    if endpoint.open_since is not None:
        return "failing", "bad"
    if not endpoint.attempts:
        return ("late", "warn") if _is_late(endpoint) else ("no attempts", "")
    if not endpoint.delivered:
        return "failing", "bad"
    if endpoint.delivered < endpoint.attempts * _HALF or endpoint.last_outcome != "delivered":
        return "unsteady", "warn"
    return ("late", "warn") if _is_late(endpoint) else ("healthy", "good")


def _is_late(endpoint: EndpointRecord) -> bool:
    return endpoint.late_s is not None and endpoint.late_s > _LATE_S
