"""Operations that list deliveries and endpoints, and resend events with the same `webhook-id`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Annotated, ClassVar, Literal
from uuid import UUID

from payintent.core import ids
from payintent.core.access import Role
from payintent.core.errors import BadRequestError, NotFoundError
from payintent.core.texts import format_count
from payintent.db.database import Tx
from payintent.operators.fields import (
    ListLimit,
    MerchantFilter,
    argument,
    check_after,
    check_list_limit,
    check_merchant,
    option,
    to_utc,
)
from payintent.operators.operation import (
    Actor,
    BatchOperation,
    ChangeOperation,
    OperationContext,
    ReadOperation,
    copy_fields,
    run,
)
from payintent.webhooks import deliveries_store as delivery_store
from payintent.webhooks import endpoints_store as endpoint_store
from payintent.webhooks import outbox_store
from payintent.webhooks.endpoints_store import EndpointRecord
from payintent.webhooks.model import MissedEvents
from payintent.webhooks.outbox_store import DeliveryRecord, StoredAttempt

#: Events per transaction of `webhooks.replay-missed`.
BATCH = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    id: UUID
    payment_id: str
    merchant_id: int
    type: str
    body: str  # sent byte for byte
    occurred_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EventAttempts:
    event: EventView
    attempts: list[StoredAttempt]


@dataclass(frozen=True, slots=True)
class ReplayedEvent:
    event_id: UUID
    merchant_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedEvents:
    """The number of resent events, with the first and last event IDs."""

    events: int
    first_event_id: UUID | None
    last_event_id: UUID | None


_EventId = Annotated[UUID, argument("An event id such as 01a1fd8e-30f1-7452-8742-48e063df9146.")]


class ListDeliveries(ReadOperation[list[DeliveryRecord]], frozen=True, kw_only=True):
    """List events with the state of their delivery, newest first."""

    action: ClassVar[str] = "webhooks.list"
    columns = ("event_id", "type", "payment_id", "merchant_id", "state", "attempts")
    merchant_id: MerchantFilter = None
    state: Annotated[
        Literal["pending", "delivered", "dead", "skipped"] | None,
        option("Only this state: pending, delivered, dead or skipped.", any_text=True),
    ] = None
    tried: Annotated[
        bool,
        option(
            "Only events with a delivery attempt; `pending` then lists retries.", flags="--tried"
        ),
    ] = False
    since: Annotated[datetime | None, option("Events at or after this time, UTC.")] = None
    until: Annotated[datetime | None, option("Events before this time, UTC.")] = None
    before: Annotated[UUID | None, option("The last event on the previous page.")] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[DeliveryRecord]:
        check_list_limit(self.limit)
        await check_merchant(context.database, self.merchant_id)
        return await delivery_store.list_deliveries(
            context.read_database,
            self.limit,
            self.before,
            merchant_id=self.merchant_id,
            state=self.state,
            since=to_utc("since", self.since),
            until=to_utc("until", self.until),
            has_attempts=self.tried,
        )


class ListEndpoints(ReadOperation[list[EndpointRecord]], frozen=True, kw_only=True):
    """List webhook endpoints with their pending deliveries and last attempts."""

    action: ClassVar[str] = "webhooks.endpoints"
    columns = (
        *("merchant_id", "merchant_name", "callback_url", "pending", "late_s", "dead"),
        *("attempts", "delivered", "median_ms", "p95_ms", "open_until", "last_outcome"),
    )
    merchant_id: MerchantFilter = None
    after: Annotated[int, option("The last merchant on the previous page.", min=0)] = 0
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[EndpointRecord]:
        check_list_limit(self.limit)
        await check_merchant(context.database, self.merchant_id)
        check_after(self.after)
        return await endpoint_store.list_endpoints(
            context.read_database, self.merchant_id, self.after, self.limit
        )


class ShowEvent(ReadOperation[EventAttempts], frozen=True, kw_only=True):
    """Show an event, its body, and every attempt to deliver it."""

    action: ClassVar[str] = "webhooks.show"
    event_id: _EventId

    async def read(self, context: OperationContext) -> EventAttempts:
        event = await outbox_store.get_event(context.database, self.event_id)
        if event is None:
            raise NotFoundError(f"no event {self.event_id}")
        attempts = await outbox_store.list_attempts(context.database, self.event_id)
        payment_id = ids.format_id(ids.PAYMENT, event.payment_id)
        view = copy_fields(EventView, event, payment_id=payment_id)
        return EventAttempts(event=view, attempts=attempts)


class ResendEvent(ChangeOperation[ReplayedEvent], frozen=True, kw_only=True):
    """Resend an event with the same webhook-id, regardless of its state."""

    action: ClassVar[str] = "webhooks.replay"
    needs_role: ClassVar[Role] = Role.SUPPORT
    event_id: _EventId

    async def apply(self, context: OperationContext, tx: Tx) -> ReplayedEvent:
        merchant_id = await delivery_store.replay(tx, self.event_id)
        if merchant_id is None:
            raise NotFoundError(f"no event {self.event_id}")
        return ReplayedEvent(self.event_id, merchant_id)


class ResendMissedEvents(BatchOperation[ReplayedEvents], frozen=True, kw_only=True):
    """Resend dead and skipped events, filtered by merchant, period or both.

    Each event keeps its webhook-id. A time without a time zone is UTC.
    """

    action: ClassVar[str] = "webhooks.replay-missed"
    needs_role: ClassVar[Role] = Role.SUPPORT
    is_destructive: ClassVar[bool] = True
    has_dry_run: ClassVar[bool] = True
    batch_size: ClassVar[int] = BATCH
    merchant_id: MerchantFilter = None
    since: Annotated[datetime | None, option("Events at or after this time, UTC.")] = None
    until: Annotated[datetime | None, option("Events before this time, UTC.")] = None

    async def check(self, context: OperationContext) -> None:
        if self.merchant_id is None and self.since is None and self.until is None:
            raise BadRequestError("specify a merchant, a period or both")
        await check_merchant(context.database, self.merchant_id)
        self._build_criteria()

    async def changes(self, context: OperationContext) -> list[str]:
        total = await self.total(context)
        return [f"{format_count(total, 'event')} will be resent"]

    async def total(self, context: OperationContext) -> int:
        return (await delivery_store.count_missed(context.database, self._build_criteria())).events

    async def count_changes(self, context: OperationContext) -> Mapping[str, object]:
        missed_count = await delivery_store.count_missed(context.database, self._build_criteria())
        return asdict(missed_count)

    async def apply(self, context: OperationContext, tx: Tx) -> ReplayedEvents:
        event_ids = await delivery_store.replay_missed(
            tx, self._build_criteria(), self.get_start_id(), BATCH
        )
        return ReplayedEvents(
            events=len(event_ids),
            first_event_id=event_ids[0] if event_ids else None,
            last_event_id=event_ids[-1] if event_ids else None,
        )

    def _build_criteria(self) -> MissedEvents:
        return MissedEvents(
            merchant_id=self.merchant_id,
            since=to_utc("since", self.since),
            until=to_utc("until", self.until),
        )

    def get_start_id(self) -> UUID:
        """Return the last event ID of the previous batch."""
        return UUID(int=0)

    def count(self, batch: ReplayedEvents) -> int:
        return batch.events

    def next_batch(self, batch: ReplayedEvents) -> "ResendMissedEvents | None":
        """Return the operation for the next batch, which starts after this batch's last event."""
        if batch.last_event_id is None or batch.events < BATCH:
            return None
        return _NextMissedEvents(
            merchant_id=self.merchant_id,
            since=self.since,
            until=self.until,
            after=batch.last_event_id,
        )

    def combine(self, total: ReplayedEvents, batch: ReplayedEvents) -> ReplayedEvents:
        return ReplayedEvents(
            events=total.events + batch.events,
            first_event_id=total.first_event_id or batch.first_event_id,
            last_event_id=batch.last_event_id or total.last_event_id,
        )

    def audit_details(self, result: ReplayedEvents) -> Mapping[str, object]:
        return {"events": result.events}


class _NextMissedEvents(ResendMissedEvents, frozen=True, kw_only=True):
    """A follow-up batch. Its audit entry records the event after which it starts."""

    after: UUID

    def get_start_id(self) -> UUID:
        return self.after


async def replay_own_event(
    context: OperationContext, merchant_id: int, actor: Actor, event_id: UUID
) -> ReplayedEvent:
    """Resend a merchant's event. Raises `NOT_FOUND` if it belongs to another merchant."""
    async with context.database.transaction() as tx:
        if await outbox_store.get_event(tx, event_id, merchant_id) is None:
            raise NotFoundError("no such event")
        return await run(replace(context, actor=actor), tx, ResendEvent(event_id=event_id))
