"""Sending events again, under their own webhook-id."""

from datetime import datetime
from typing import ClassVar
from uuid import UUID

from payintent.domain.errors import Code, Refused
from payintent.domain.outgoing import Missed
from payintent.operation.desk import Change, Desk
from payintent.storage import outbox
from payintent.storage.database import Tx


class ReplayEvent(Change[list[UUID]], frozen=True, kw_only=True):
    """Send one event again, whatever its state."""

    action: ClassVar[str] = "webhooks.replay"
    event_id: UUID

    async def apply(self, desk: Desk, tx: Tx) -> list[UUID]:
        """Make it due."""
        del desk
        if not await outbox.replay(tx, self.event_id):
            raise Refused(Code.NOT_FOUND, "no such event")
        return [self.event_id]


class ReplayMissed(Change[list[UUID]], frozen=True, kw_only=True):
    """Send what did not arrive again, of a merchant or a time or both."""

    action: ClassVar[str] = "webhooks.replay-missed"
    merchant_id: int | None = None
    since: datetime | None = None
    until: datetime | None = None

    async def check(self, desk: Desk) -> None:
        """Refuse to send everything of everybody."""
        del desk
        if self.merchant_id is None and self.since is None and self.until is None:
            raise Refused(Code.BAD_REQUEST, "name a merchant or a time")

    async def apply(self, desk: Desk, tx: Tx) -> list[UUID]:
        """Make them due."""
        del desk
        missed = Missed(merchant_id=self.merchant_id, since=self.since, until=self.until)
        return await outbox.replay_missed(tx, missed)
