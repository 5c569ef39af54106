"""Events and every attempt to deliver them; and sending them again, under their own webhook-id."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar, Literal
from uuid import UUID

from payintent.domain import ids
from payintent.domain.delivery import MissedEvents
from payintent.domain.errors import BadRequestError, NotFoundError
from payintent.domain.operator import Role
from payintent.operations.base import (
    BatchOperation,
    ChangeOperation,
    OperationContext,
    ReadOperation,
)
from payintent.operations.fields import ListLimit, OfMerchantId, argument, option
from payintent.operations.validation import as_utc, check_after, check_list_limit, check_merchant
from payintent.storage import delivery_list, endpoint_list, event_replays, outbox
from payintent.storage.database import Tx
from payintent.storage.delivery_list import DeliveryFilter
from payintent.storage.endpoint_list import EndpointRecord
from payintent.storage.outbox import DeliveryRecord, EventRecord, StoredAttempt

#: How many events one transaction makes due again.
BATCH = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryView:
    event_id: UUID
    type: str
    payment_id: str
    merchant_id: int
    state: str
    attempts: int  # since it was last sent again
    next_at: datetime
    occurred_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """An event with the bytes that are sent."""

    id: UUID
    payment_id: str
    merchant_id: int
    type: str
    body: str
    occurred_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EventAttempts:
    """An event, and every attempt to deliver it, numbered on through replays."""

    event: EventView
    attempts: list[StoredAttempt]


@dataclass(frozen=True, slots=True)
class ReplayedEvent:
    event_id: UUID
    merchant_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedEvents:
    """How many events are due again, and which are the first and the last of them."""

    events: int
    first_event_id: UUID | None
    last_event_id: UUID | None


_EventId = Annotated[UUID, argument("Such as 01a1fd8e-30f1-7452-8742-48e063df9146.")]


class ListDeliveries(ReadOperation[list[DeliveryView]], frozen=True, kw_only=True):
    """List events and how far their delivery is, newest first."""

    action: ClassVar[str] = "webhooks.list"
    columns = ("event_id", "type", "payment_id", "merchant_id", "state", "attempts")
    merchant_id: OfMerchantId = None
    state: Annotated[
        Literal["pending", "delivered", "dead", "skipped"] | None,
        option("Of one state: pending, delivered, dead or skipped.", any_text=True),
    ] = None
    tried: Annotated[
        bool,
        option("Those that were tried: of `pending` ones, the late.", flags="--tried"),
    ] = False
    since: Annotated[datetime | None, option("Events from this time on, UTC.")] = None
    until: Annotated[datetime | None, option("Events before this time, UTC.")] = None
    before: Annotated[
        UUID | None, option("The next page: events before this one, the last of a page.")
    ] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[DeliveryView]:
        check_list_limit(self.limit)
        await check_merchant(context.database, self.merchant_id)
        wanted = DeliveryFilter(
            merchant_id=self.merchant_id,
            state=self.state,
            since=as_utc("since", self.since),
            until=as_utc("until", self.until),
            tried=self.tried,
            before=self.before,
        )
        records = await delivery_list.list_deliveries(context.reading, wanted, self.limit)
        return list(map(_delivery, records))


class ListEndpoints(ReadOperation[list[EndpointRecord]], frozen=True, kw_only=True):
    """List where webhooks go, what waits there, and how the last attempts ended."""

    action: ClassVar[str] = "webhooks.endpoints"
    columns = (
        *("merchant_id", "merchant_name", "callback_url", "pending", "late_s", "dead"),
        *("attempts", "delivered", "median_ms", "p95_ms", "open_until", "last_outcome"),
    )
    merchant_id: OfMerchantId = None
    after: Annotated[int, option("The next page: merchants after this number.", min=0)] = 0
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[EndpointRecord]:
        check_list_limit(self.limit)
        await check_merchant(context.database, self.merchant_id)
        check_after(self.after)
        return await endpoint_list.list_endpoints(
            context.reading, self.merchant_id, self.after, self.limit
        )


class ShowEvent(ReadOperation[EventAttempts], frozen=True, kw_only=True):
    """Show an event, its bytes, and every attempt to deliver it."""

    action: ClassVar[str] = "webhooks.show"
    event_id: _EventId

    async def read(self, context: OperationContext) -> EventAttempts:
        event = await outbox.get_event(context.database, self.event_id)
        if event is None:
            raise NotFoundError(f"no event {self.event_id}")
        attempts = await outbox.list_attempts(context.database, self.event_id)
        return EventAttempts(event=_event(event), attempts=attempts)


class ReplayEvent(ChangeOperation[ReplayedEvent], frozen=True, kw_only=True):
    """Send one event again, whatever its state, under its own webhook-id."""

    action: ClassVar[str] = "webhooks.replay"
    needs_role: ClassVar[Role] = Role.SUPPORT
    event_id: _EventId

    async def apply(self, context: OperationContext, tx: Tx) -> ReplayedEvent:
        merchant_id = await event_replays.replay(tx, self.event_id)
        if merchant_id is None:
            raise NotFoundError(f"no event {self.event_id}")
        return ReplayedEvent(self.event_id, merchant_id)


class ReplayMissedEvents(BatchOperation[ReplayedEvents], frozen=True, kw_only=True):
    """Send again what is dead or was skipped, each under its own webhook-id.

    Of a merchant or a time or both; a time without zone is UTC.
    """

    action: ClassVar[str] = "webhooks.replay-missed"
    needs_role: ClassVar[Role] = Role.SUPPORT
    is_destructive: ClassVar[bool] = True
    has_dry_run: ClassVar[bool] = True
    batch_size: ClassVar[int] = BATCH
    merchant_id: OfMerchantId = None
    since: Annotated[datetime | None, option("Events from this time on, UTC.")] = None
    until: Annotated[datetime | None, option("Events before this time, UTC.")] = None

    async def check(self, context: OperationContext) -> None:
        if self.merchant_id is None and self.since is None and self.until is None:
            raise BadRequestError("name a merchant or a time")
        await check_merchant(context.database, self.merchant_id)
        self._missed()

    async def changes(self, context: OperationContext) -> list[str]:
        return [f"{await self.total(context)} events are sent again"]

    async def total(self, context: OperationContext) -> int:
        return (await event_replays.count_missed(context.database, self._missed())).events

    async def foresee(self, context: OperationContext) -> Mapping[str, object]:
        missed = await event_replays.count_missed(context.database, self._missed())
        return {
            "events": missed.events,
            "merchants": missed.merchants,
            "oldest": missed.oldest,
            "newest": missed.newest,
        }

    async def apply(self, context: OperationContext, tx: Tx) -> ReplayedEvents:
        event_ids = await event_replays.replay_missed(tx, self._missed(), self.done_up_to(), BATCH)
        return ReplayedEvents(
            events=len(event_ids),
            first_event_id=event_ids[0] if event_ids else None,
            last_event_id=event_ids[-1] if event_ids else None,
        )

    def _missed(self) -> MissedEvents:
        return MissedEvents(
            merchant_id=self.merchant_id,
            since=as_utc("since", self.since),
            until=as_utc("until", self.until),
        )

    def done_up_to(self) -> UUID:
        """Return the id of the last event of the batch before."""
        return UUID(int=0)

    def count(self, done: ReplayedEvents) -> int:
        return done.events

    def following(self, batch: ReplayedEvents) -> "ReplayMissedEvents | None":
        """Continue after the last one, so that no event is sent twice."""
        if batch.last_event_id is None or batch.events < BATCH:
            return None
        return _FurtherMissedEvents(
            merchant_id=self.merchant_id,
            since=self.since,
            until=self.until,
            after=batch.last_event_id,
        )

    def combine(self, done: ReplayedEvents, batch: ReplayedEvents) -> ReplayedEvents:
        return ReplayedEvents(
            events=done.events + batch.events,
            first_event_id=done.first_event_id or batch.first_event_id,
            last_event_id=batch.last_event_id or done.last_event_id,
        )

    def audit_details(self, result: ReplayedEvents) -> Mapping[str, object]:
        return {"events": result.events}


class _FurtherMissedEvents(ReplayMissedEvents, frozen=True, kw_only=True):
    """The events after those of the batch before; the audit entry has where it began."""

    after: UUID

    def done_up_to(self) -> UUID:
        return self.after


def _delivery(delivery: DeliveryRecord) -> DeliveryView:
    return DeliveryView(
        event_id=delivery.event_id,
        type=delivery.type,
        payment_id=ids.format_id(ids.PAYMENT, delivery.payment_id),
        merchant_id=delivery.merchant_id,
        state=delivery.state,
        attempts=delivery.attempts,
        next_at=delivery.next_at,
        occurred_at=delivery.occurred_at,
    )


def _event(event: EventRecord) -> EventView:
    return EventView(
        id=event.id,
        payment_id=ids.format_id(ids.PAYMENT, event.payment_id),
        merchant_id=event.merchant_id,
        type=event.type,
        body=event.body,
        occurred_at=event.occurred_at,
    )
