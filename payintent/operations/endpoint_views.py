"""Webhook endpoints as operators read them."""

from dataclasses import asdict, dataclass
from datetime import datetime

from payintent.storage import endpoint_list
from payintent.storage.database import Executor
from payintent.storage.endpoint_list import EndpointAnswer, EndpointPlace, EndpointState


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointView:
    """Where a merchant's webhooks go, what waits for it, and how its last attempts ended."""

    merchant_id: int
    merchant_name: str
    callback_url: str | None
    pending: int  # counted up to 1,000, as `dead` and `skipped` are
    late_s: int | None  # for how long the first of them has been due
    dead: int
    skipped: int
    attempts: int  # of the last 20 events
    delivered: int  # of these attempts
    median_ms: int | None
    p95_ms: int | None  # within which 95 of 100 attempts ended
    slowest_ms: int | None
    open_since: datetime | None  # a worker's circuit breaker is open since; None: closed
    open_until: datetime | None  # the next delivery is tried then
    trips: int  # how often it opened in a row
    open_detail: str | None  # what the attempt that opened it came to
    last_at: datetime | None
    last_outcome: str | None
    last_status: int | None
    last_detail: str | None
    last_answer: str | None
    answers: list[EndpointAnswer]  # the last five, newest first


async def read_endpoint_views(
    database: Executor, merchant_id: int | None, after: int, limit: int
) -> list[EndpointView]:
    """Read the endpoints of merchants after a number, or of one merchant."""
    places = await endpoint_list.list_places(database, merchant_id, after, limit)
    states = await endpoint_list.read_states(database, [place.merchant_id for place in places])
    return [_view(place, states[place.merchant_id]) for place in places]


def _view(place: EndpointPlace, state: EndpointState) -> EndpointView:
    last = state.answers[0] if state.answers else None
    return EndpointView(
        **asdict(place),
        **{name: getattr(state, name) for name in EndpointState.__slots__},
        last_at=last and last.at,
        last_outcome=last and last.outcome,
        last_status=last and last.status,
        last_detail=last and last.detail,
        last_answer=last and last.answer,
    )
