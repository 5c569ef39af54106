"""A merchant's events after they were sent: the feed of all of them, and one sent again."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payintent.api.context import AppContext
from payintent.api.etag import json_response
from payintent.api.merchant_access import merchant_route
from payintent.api.pagination import read_feed_cursor, read_limit, write_feed_cursor
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.event import EventType
from payintent.json_format import format_timestamp
from payintent.operations.merchant_actions import key_actor, replay_own_event
from payintent.payments.change_feed import ChangeSubscriber
from payintent.slot import release_slot
from payintent.storage import event_feed, merchant_events
from payintent.storage.api_keys import AuthenticatedMerchant
from payintent.storage.event_feed import FeedEvent, FeedPage, FeedPosition

WAIT_MAX_S = 25
FEED_WAITS_MAX = 5  # requests of one merchant that wait at one process
_PENDING = "pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRequest:
    """What a merchant wants of its feed; without `after`, the last 30 days."""

    merchant_id: int
    after: FeedPosition | None
    types: tuple[EventType, ...]
    limit: int
    wait_s: int


@merchant_route
async def read_event_feed(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    """`GET /events?after=&types=&limit=&wait=`: the oldest first; waits up to 25 s for the next."""
    wanted = read_feed_request(request.query_params, merchant.merchant_id)
    page = await _read(app, wanted)
    if not page.events and not page.has_more and wanted.wait_s and request.method == "GET":
        page = await _wait(request, app, wanted)
    return json_response(
        {
            "data": [feed_event_fields(event) for event in page.events],
            "after": write_feed_cursor(page.position),
            "has_more": page.has_more,
        }
    )


@merchant_route
async def replay_event(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    """`POST /events/{event_id}/replay`: it is due again, from the first attempt on."""
    event_id = _event_id(request.path_params["event_id"])
    actor = key_actor(merchant.merchant_id, merchant.public_id)
    service = app.service
    await replay_own_event(service.operation_context, merchant.merchant_id, actor, event_id)
    delivery = await merchant_events.get_delivery(service.database, merchant.merchant_id, event_id)
    assert delivery is not None  # noqa: S101 - its event was found, and retention keeps what is due
    fields = {"state": delivery.state, "attempts": delivery.attempts}
    return json_response({"id": str(event_id), "delivery": fields}, 202)


def feed_event_fields(event: FeedEvent) -> dict[str, Any]:
    """Return an event of the feed; `event` is byte for byte the body of its webhook."""
    delivery: dict[str, Any] = {"state": event.state, "attempts": event.attempts}
    if event.state == _PENDING:
        delivery["next_attempt_at"] = format_timestamp(event.next_at)
    if event.delivered_at is not None:
        delivery["delivered_at"] = format_timestamp(event.delivered_at)
    return {
        "id": str(event.id),
        "event": msgspec.Raw(event.body.encode()),
        "delivery": delivery,
    }


def read_feed_request(query: Mapping[str, str], merchant_id: int) -> FeedRequest:
    """Read what is wanted of a feed (`BAD_REQUEST`)."""
    after = query.get("after")
    return FeedRequest(
        merchant_id=merchant_id,
        after=None if after is None else read_feed_cursor(after),
        types=_types(query.get("types")),
        limit=read_limit(query.get("limit")),
        wait_s=_wait_s(query.get("wait", "0")),
    )


def _types(raw: str | None) -> tuple[EventType, ...]:
    if raw is None:
        return tuple(EventType)
    names = raw.split(",", len(EventType))
    if not set(names) <= set(EventType):
        raise RefusedError(
            ErrorCode.BAD_REQUEST, f"types must be some of {','.join(EventType)}, with commas"
        )
    return tuple(EventType(name) for name in names)


def _wait_s(raw: str) -> int:
    well_formed = raw.isascii() and raw.isdecimal() and len(raw) <= len(str(WAIT_MAX_S))
    if not well_formed or int(raw) > WAIT_MAX_S:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"wait must be from 0 to {WAIT_MAX_S} seconds")
    return int(raw)


def _event_id(raw: str) -> UUID:
    try:
        return UUID(raw)
    except ValueError:
        raise RefusedError(ErrorCode.NOT_FOUND, "no such event") from None


async def _read(app: AppContext, wanted: FeedRequest) -> FeedPage:
    """Read the events behind a position.

    Raises `BAD_REQUEST` if the feed has another event, or none, at that position: the database was
    restored to a time before it was read.
    """
    database, merchant_id, after = app.service.database, wanted.merchant_id, wanted.after
    may_be_more = await event_feed.number_new_events(database, merchant_id)
    if after is None:
        after = await event_feed.first_position(database, merchant_id)
    elif not await event_feed.is_position(database, merchant_id, after):
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "after is no place of this feed, which may have been restored: read it without after",
        )
    page = await event_feed.page(database, merchant_id, after, wanted.types, wanted.limit)
    return replace(page, has_more=page.has_more or may_be_more)


async def _wait(request: Request, app: AppContext, wanted: FeedRequest) -> FeedPage:
    """Read again whenever the merchant has new events, until there is one that is wanted.

    It holds no slot while it waits, and no connection to the database. An empty page where time is
    over, where the client has gone, or where this process stops.
    """
    loop = asyncio.get_running_loop()
    over_at = loop.time() + wanted.wait_s
    watch = ChangeSubscriber()
    app.event_feed.require_capacity(wanted.merchant_id)
    release_slot()
    with app.event_feed.subscribe(wanted.merchant_id, watch):
        gone = asyncio.create_task(_wake_when_gone(request, watch))
        try:
            while True:
                page = await _read(app, wanted)
                is_over = loop.time() >= over_at or gone.done() or app.event_feed.closing
                if page.events or is_over:
                    return page
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(over_at):
                        await watch.changed.wait()
                watch.changed.clear()
        finally:
            gone.cancel()


async def _wake_when_gone(request: Request, watch: ChangeSubscriber) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    watch.changed.set()
