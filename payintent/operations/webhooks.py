"""Sending events again, under their own webhook-id."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar
from uuid import UUID

from payintent.domain.delivery import MissedEvents
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.operator import Role
from payintent.operations.base import BatchOperation, ChangeOperation, OperationContext
from payintent.operations.fields import OfMerchantId, argument, option
from payintent.operations.validation import as_utc, check_merchant
from payintent.storage import outbox
from payintent.storage.database import Tx

#: How many events one transaction makes due again.
BATCH = 1_000


@dataclass(frozen=True, slots=True)
class ReplayedEvent:
    """An event that is due again."""

    event_id: UUID
    merchant_id: int


class ReplayEvent(ChangeOperation[ReplayedEvent], frozen=True, kw_only=True):
    """Send one event again, whatever its state, under its own webhook-id."""

    action: ClassVar[str] = "webhooks.replay"
    needs_role: ClassVar[Role] = Role.SUPPORT
    event_id: Annotated[UUID, argument("Such as 01a1fd8e-30f1-7452-8742-48e063df9146.")]

    async def apply(self, context: OperationContext, tx: Tx) -> ReplayedEvent:
        """Make the event's delivery due; raise `NOT_FOUND` for an unknown event."""
        del context
        merchant_id = await outbox.replay(tx, self.event_id)
        if merchant_id is None:
            raise RefusedError(ErrorCode.NOT_FOUND, f"no event {self.event_id}")
        return ReplayedEvent(self.event_id, merchant_id)

    def merchant_id_of(self, result: ReplayedEvent) -> int:
        """Return the event's merchant."""
        return result.merchant_id


class ReplayMissedEvents(BatchOperation[UUID], frozen=True, kw_only=True):
    """Send again what is dead or was skipped, each under its own webhook-id.

    Of a merchant or a time or both; a time without zone is UTC.
    """

    action: ClassVar[str] = "webhooks.replay-missed"
    columns = ("event_id",)
    needs_role: ClassVar[Role] = Role.SUPPORT
    merchant_id: OfMerchantId = None
    since: Annotated[datetime | None, option("Events from this time on, UTC.")] = None
    until: Annotated[datetime | None, option("Events before this time, UTC.")] = None

    async def check(self, context: OperationContext) -> None:
        """Refuse a replay without merchant and without time."""
        if self.merchant_id is None and self.since is None and self.until is None:
            raise RefusedError(ErrorCode.BAD_REQUEST, "name a merchant or a time")
        await check_merchant(context.database, self.merchant_id)
        for name, moment in (("since", self.since), ("until", self.until)):
            as_utc(name, moment)

    async def apply(self, context: OperationContext, tx: Tx) -> list[UUID]:
        """Make the next batch due; returns its event ids."""
        del context
        missed = MissedEvents(
            merchant_id=self.merchant_id,
            since=as_utc("since", self.since),
            until=as_utc("until", self.until),
        )
        return await outbox.replay_missed(tx, missed, self.done_up_to(), BATCH)

    def done_up_to(self) -> UUID:
        """Return the id of the last event of the batch before."""
        return UUID(int=0)

    def following(self, batch: Sequence[UUID]) -> "ReplayMissedEvents | None":
        """Continue after the last one, so that no event is sent twice."""
        if len(batch) < BATCH:
            return None
        return _FurtherMissedEvents(
            merchant_id=self.merchant_id, since=self.since, until=self.until, after=batch[-1]
        )


class _FurtherMissedEvents(ReplayMissedEvents, frozen=True, kw_only=True):
    """The events after those of the batch before; the audit entry has where it began."""

    after: UUID

    def done_up_to(self) -> UUID:
        return self.after
