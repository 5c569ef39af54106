"""Merchant routes for events: read the event feed and replay an event."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.core.errors import ErrorCode, RefusedError
from payintent.db.database import Database
from payintent.db.notify import ChangeFeed, ChangeSubscriber
from payintent.http.application import read_path_uuid
from payintent.http.pagination import (
    ID_BYTES,
    NUMBER_BYTES,
    decode_cursor,
    decode_number,
    encode_cursor,
    parse_number,
    read_limit,
)
from payintent.http.responses import json_response
from payintent.merchants.access import MerchantApi
from payintent.merchants.access_operations import key_actor
from payintent.merchants.access_store import AuthenticatedMerchant
from payintent.operators.operation import OperationContext
from payintent.runtime.json_format import format_timestamp
from payintent.runtime.waiting import release_slot
from payintent.webhooks import deliveries_store as delivery_store
from payintent.webhooks import feed_store
from payintent.webhooks.feed_store import FeedCursor, FeedEvent, FeedPage
from payintent.webhooks.model import EventType
from payintent.webhooks.operations import replay_own_event

WAIT_MAX_S = 25
FEED_WAITS_MAX = 5  # waiting requests per merchant and process
_PENDING = "pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRequest:
    merchant_id: int
    after: FeedCursor | None  # None: the last 30 days
    types: tuple[EventType, ...]
    limit: int
    wait_s: int


@dataclass(frozen=True, slots=True)
class EventFeedRoutes:
    api: MerchantApi
    database: Database
    changes: ChangeFeed[int]  # notifies of new events, by merchant ID
    context: OperationContext

    def routes(self) -> list[Route]:
        return [
            self.api.route("GET", "/v1/events", self.get_feed),
            self.api.route("POST", "/v1/events/{event_id}/replay", self.replay_event),
        ]

    async def get_feed(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        """`GET /events?after=&types=&limit=&wait=`: read the event feed, with long polling."""
        feed_request = read_feed_request(request.query_params, merchant.merchant_id)
        page = await self._read_page(feed_request)
        is_empty = not page.events and not page.has_more
        if is_empty and feed_request.wait_s and request.method == "GET":
            page = await self._wait_for_page(request, feed_request)
        return json_response(
            {
                "data": [feed_event_fields(event) for event in page.events],
                "after": write_feed_cursor(page.cursor),
                "has_more": page.has_more,
            }
        )

    async def replay_event(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        """`POST /events/{event_id}/replay`: resend the event and restart its retry schedule."""
        event_id = read_path_uuid(request, "event_id", "no such event")
        merchant_id = merchant.merchant_id
        actor = key_actor(merchant_id, merchant.public_id)
        await replay_own_event(self.context, merchant_id, actor, event_id)
        delivery = await delivery_store.get_delivery(self.database, merchant_id, event_id)
        assert delivery is not None  # noqa: S101 - the event exists, and events with a due delivery are not pruned
        fields = {"state": delivery.state, "attempts": delivery.attempts}
        return json_response({"id": str(event_id), "delivery": fields}, 202)

    async def _read_page(self, feed_request: FeedRequest) -> FeedPage:
        """Read the events after the requested cursor.

        Raises `BAD_REQUEST` if the feed does not have the cursor's event at that position. This
        happens after the database has been restored from a backup.
        """
        database, merchant_id = self.database, feed_request.merchant_id
        may_be_more = await feed_store.number_new_events(database, merchant_id)
        after = feed_request.after
        if after is None:
            after = await feed_store.get_first_cursor(database, merchant_id)
        elif not await feed_store.is_valid_cursor(database, merchant_id, after):
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                "after is not a position of this feed, which may have been restored:"
                " read the feed without after",
            )
        page = await feed_store.page(
            database, merchant_id, after, feed_request.types, feed_request.limit
        )
        return replace(page, has_more=page.has_more or may_be_more)

    async def _wait_for_page(self, request: Request, feed_request: FeedRequest) -> FeedPage:
        """Re-read whenever the merchant has new events, until some match the request.

        Waiting does not occupy an admission slot or a database connection. The page is empty if the
        wait times out, the client disconnects, or the process stops.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + feed_request.wait_s
        subscriber = ChangeSubscriber()
        self.changes.require_capacity(feed_request.merchant_id)
        release_slot()
        with self.changes.subscribe(feed_request.merchant_id, subscriber):
            disconnect = asyncio.create_task(_wake_on_disconnect(request, subscriber))
            try:
                while True:
                    page = await self._read_page(feed_request)
                    is_over = loop.time() >= deadline or disconnect.done() or self.changes.closing
                    if page.events or is_over:
                        return page
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(deadline):
                            await subscriber.changed.wait()
                    subscriber.changed.clear()
            finally:
                disconnect.cancel()


def feed_event_fields(event: FeedEvent) -> dict[str, Any]:
    """Format an event for the feed; the `event` field contains the exact webhook body."""
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
    """Parse the feed's query parameters; raises `BAD_REQUEST` if any is invalid."""
    after = query.get("after")
    return FeedRequest(
        merchant_id=merchant_id,
        after=None if after is None else read_feed_cursor(after),
        types=_event_types(query.get("types")),
        limit=read_limit(query.get("limit")),
        wait_s=_wait_s(query.get("wait", "0")),
    )


def write_feed_cursor(position: FeedCursor) -> str:
    return encode_cursor(position.number.to_bytes(NUMBER_BYTES, "big") + position.event_id.bytes)


def read_feed_cursor(raw: str) -> FeedCursor:
    """Parse a feed cursor; raises `BAD_REQUEST` if it is malformed."""
    position = decode_cursor(raw, NUMBER_BYTES + ID_BYTES)
    number = decode_number(position[:NUMBER_BYTES])
    return FeedCursor(number, UUID(bytes=position[NUMBER_BYTES:]))


def _event_types(raw: str | None) -> tuple[EventType, ...]:
    if raw is None:
        return tuple(EventType)
    names = raw.split(",", len(EventType))
    if not set(names) <= set(EventType):
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"types must be a comma-separated list of {','.join(EventType)}",
        )
    return tuple(EventType(name) for name in names)


def _wait_s(raw: str) -> int:
    wait_s = parse_number(raw, WAIT_MAX_S)
    if wait_s is None:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"wait must be from 0 to {WAIT_MAX_S} seconds")
    return wait_s


async def _wake_on_disconnect(request: Request, subscriber: ChangeSubscriber) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    subscriber.changed.set()
