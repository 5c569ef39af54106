"""Merchant and operator routes that list events and deliveries, and replay events."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.core.errors import BadRequestError
from payintent.db.database import Database
from payintent.db.notify import ChangeFeed, ChangeSubscriber
from payintent.http.application import read_path_uuid
from payintent.http.bodies import read_body
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
from payintent.operators.access import OperatorApi, pop_reason, read_fields
from payintent.operators.operation import Actor, OperationContext
from payintent.operators.submit import run_operation
from payintent.runtime.json_format import format_timestamp
from payintent.runtime.waiting import release_slot
from payintent.webhooks import deliveries_store as delivery_store
from payintent.webhooks import feed_store, outbox_store
from payintent.webhooks.feed_store import FeedCursor, FeedEvent, FeedPage
from payintent.webhooks.model import EventType
from payintent.webhooks.operations import ResendEvent, replay_own_event

WAIT_MAX_S = 25
FEED_WAITS_MAX = 5  # waiting requests per merchant and process
_PENDING = "pending"
_NUMBER_MAX = 10**18 - 1  # fits in a bigint


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
    changes: ChangeFeed[int]  # notifies subscribers of new events, by merchant ID
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
                "data": [make_feed_event_fields(event) for event in page.events],
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

        Raises `BAD_REQUEST` if the feed does not have the cursor's event at that position. This can
        happen after the database has been restored from a backup.
        """
        database, merchant_id = self.database, feed_request.merchant_id
        has_unnumbered_events = await feed_store.number_new_events(database, merchant_id)
        after = feed_request.after
        if after is None:
            after = await feed_store.get_first_cursor(database, merchant_id)
        elif not await feed_store.is_valid_cursor(database, merchant_id, after):
            raise BadRequestError(
                "after is not a cursor of this feed, possibly because the database was restored;"
                " read the feed without after"
            )
        page = await feed_store.read_page(
            database, merchant_id, after, feed_request.types, feed_request.limit
        )
        return replace(page, has_more=page.has_more or has_unnumbered_events)

    async def _wait_for_page(self, request: Request, feed_request: FeedRequest) -> FeedPage:
        """Re-read whenever the merchant has new events, until an event matches the request.

        If more events of other types occur than one read scans, the client must continue after
        them, so the wait also ends.

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
                    is_last_read = (
                        loop.time() >= deadline or disconnect.done() or self.changes.closing
                    )
                    if page.events or page.has_more or is_last_read:
                        return page
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(deadline):
                            await subscriber.changed.wait()
                    subscriber.changed.clear()
            finally:
                disconnect.cancel()


def make_feed_event_fields(event: FeedEvent) -> dict[str, Any]:
    """Format an event for the feed. The `event` field is the exact webhook body."""
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
    """Parse the feed's query parameters. Raises `BAD_REQUEST` if any is invalid."""
    after = query.get("after")
    return FeedRequest(
        merchant_id=merchant_id,
        after=None if after is None else read_feed_cursor(after),
        types=_read_event_types(query.get("types")),
        limit=read_limit(query.get("limit")),
        wait_s=_read_wait_s(query.get("wait", "0")),
    )


def write_feed_cursor(cursor: FeedCursor) -> str:
    return encode_cursor(cursor.number.to_bytes(NUMBER_BYTES, "big") + cursor.event_id.bytes)


def read_feed_cursor(raw: str) -> FeedCursor:
    """Parse a feed cursor. Raises `BAD_REQUEST` if it is malformed."""
    cursor = decode_cursor(raw, NUMBER_BYTES + ID_BYTES)
    number = decode_number(cursor[:NUMBER_BYTES])
    return FeedCursor(number, UUID(bytes=cursor[NUMBER_BYTES:]))


def _read_event_types(raw: str | None) -> tuple[EventType, ...]:
    if raw is None:
        return tuple(EventType)
    names = raw.split(",", len(EventType))
    if not set(names) <= set(EventType):
        raise BadRequestError(f"types must be a comma-separated list of {','.join(EventType)}")
    return tuple(EventType(name) for name in names)


def _read_wait_s(raw: str) -> int:
    wait_s = parse_number(raw, WAIT_MAX_S)
    if wait_s is None:
        raise BadRequestError(f"wait must be from 0 to {WAIT_MAX_S} seconds")
    return wait_s


async def _wake_on_disconnect(request: Request, subscriber: ChangeSubscriber) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    subscriber.changed.set()


@dataclass(frozen=True, slots=True)
class OperatorWebhookRoutes:
    api: OperatorApi
    context: OperationContext

    def routes(self) -> list[Route]:
        replay = "/operator/webhooks/{event_id}/replay"
        return [
            self.api.route("/operator/webhooks", self.list_deliveries),
            self.api.route(replay, self.replay_event, ["POST"]),
        ]

    async def list_deliveries(self, request: Request, actor: Actor) -> Response:
        """`GET /operator/webhooks?merchant=&state=&limit=`: list deliveries, newest first."""
        del actor
        limit = read_limit(request.query_params.get("limit"))
        deliveries = await delivery_store.list_deliveries(
            self.context.read_database,
            limit,
            merchant_id=_read_merchant_id(request),
            state=_read_state(request),
        )
        return json_response({"data": [_make_delivery_fields(delivery) for delivery in deliveries]})

    async def replay_event(self, request: Request, actor: Actor) -> Response:
        """`POST /operator/webhooks/{event_id}/replay`: resend the event, keeping its webhook-id."""
        event_id = read_path_uuid(request, "event_id", "no such event")
        raw = await read_body(request, self.context.settings.body_bytes_max)
        actor = replace(actor, reason=pop_reason(read_fields(raw)))
        await run_operation(self.context, ResendEvent(event_id=event_id), actor)
        return json_response({"event_id": str(event_id), "state": "pending"})


def _read_merchant_id(request: Request) -> int | None:
    raw = request.query_params.get("merchant")
    if raw is None:
        return None
    merchant_id = parse_number(raw, _NUMBER_MAX)
    if merchant_id is None:
        raise BadRequestError("merchant must be a whole number")
    return merchant_id


def _read_state(request: Request) -> str | None:
    state = request.query_params.get("state")
    if state is not None and state not in outbox_store.STATES:
        raise BadRequestError(f"state must be one of {', '.join(outbox_store.STATES)}")
    return state


def _make_delivery_fields(delivery: outbox_store.DeliveryRecord) -> dict[str, Any]:
    times = {"next_at": delivery.next_at, "occurred_at": delivery.occurred_at}
    return asdict(delivery) | {name: format_timestamp(at) for name, at in times.items()}
