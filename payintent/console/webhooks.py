"""Pages for webhook endpoint health, events, and an event's delivery attempts."""

from starlette.responses import Response

from payintent.console.access import OperatorVisit
from payintent.console.lists import (
    PAGE_ROWS,
    change_query,
    get_operation_url,
    read_merchant_names,
    read_query,
)
from payintent.console.operation_pages import make_page_actions
from payintent.console.payments import indent_json
from payintent.db.database import get_current_time
from payintent.http.application import read_path_uuid
from payintent.webhooks.endpoints_store import COUNT_MAX, EndpointRecord
from payintent.webhooks.operations import (
    ListDeliveries,
    ListEndpoints,
    ResendEvent,
    ResendMissedEvents,
    ShowEvent,
)

_STATES = ("pending", "delivered", "dead", "skipped")
_SUCCESS_RATE_MIN = 0.5
_LATE_S = 300
_EARLIEST_TIME = "2000-01-01T00:00:00"  # earlier than any event


async def get_webhooks(visit: OperatorVisit) -> Response:
    endpoints = await visit.read(read_query(visit, ListEndpoints, limit=PAGE_ROWS))
    last_id = endpoints[-1].merchant_id if len(endpoints) == PAGE_ROWS else None
    return visit.render(
        "webhooks.html",
        form_values=visit.query,
        merchant_names={endpoint.merchant_id: endpoint.merchant_name for endpoint in endpoints},
        endpoints=[(endpoint, describe_endpoint_health(endpoint)) for endpoint in endpoints],
        now=await get_current_time(visit.context.read_database),
        count_max=COUNT_MAX,
        replay=get_operation_url(visit, ResendMissedEvents),
        replay_all=get_operation_url(visit, ResendMissedEvents, since=_EARLIEST_TIME),
        next_link=last_id and change_query(visit, after=last_id),
    )


async def get_webhook_events(visit: OperatorVisit) -> Response:
    deliveries = await visit.read(read_query(visit, ListDeliveries, limit=PAGE_ROWS))
    is_full = len(deliveries) == PAGE_ROWS
    query = visit.query
    fields = {name: query.get(name) or None for name in ("merchant_id", "since", "until")}
    return visit.render(
        "events.html",
        form_values=query,
        deliveries=deliveries,
        merchant_names=await read_merchant_names(visit, deliveries),
        states=_STATES,
        now=await get_current_time(visit.context.read_database),
        replay=get_operation_url(visit, ResendMissedEvents, **fields),
        older_url=change_query(visit, before=deliveries[-1].event_id) if is_full else None,
    )


async def get_webhook_event(visit: OperatorVisit) -> Response:
    event_id = read_path_uuid(visit.request, "event_id", "no such event")
    details = await visit.read(ShowEvent(event_id=event_id))
    resend_url = get_operation_url(visit, ResendEvent, event_id=event_id)
    return visit.render(
        "event.html",
        event=details.event,
        merchant_names=await read_merchant_names(visit, [details.event]),
        body=indent_json(details.event.body),
        attempts=details.attempts[::-1],
        actions=make_page_actions([("Resend event", resend_url)]),
    )


def describe_endpoint_health(endpoint: EndpointRecord) -> tuple[str, str]:
    if endpoint.callback_url is None:
        return "not configured", ""
    if endpoint.open_since is not None:
        return "failing", "bad"
    is_late = endpoint.late_s is not None and endpoint.late_s > _LATE_S
    if not endpoint.attempts:
        return ("late", "warn") if is_late else ("no attempts", "")
    if not endpoint.delivered:
        return "failing", "bad"
    is_unreliable = endpoint.delivered < endpoint.attempts * _SUCCESS_RATE_MIN
    if is_unreliable or endpoint.last_outcome != "delivered":
        return "unstable", "warn"
    return ("late", "warn") if is_late else ("healthy", "good")
