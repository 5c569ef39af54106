"""The audit log."""

from datetime import datetime
from typing import Annotated, ClassVar
from uuid import UUID

from payintent.operations.base import OperationContext, ReadOperation
from payintent.operations.fields import ListLimit, option
from payintent.operations.validation import (
    as_utc,
    check_list_limit,
    check_merchant,
    check_text_if_given,
)
from payintent.storage import audit
from payintent.storage.audit import AuditEntry, AuditScope

_WHO_MAX, _ACTION_MAX = 200, 100


class ListAuditEntries(ReadOperation[list[AuditEntry]], frozen=True, kw_only=True):
    """List audit log entries, newest first."""

    action: ClassVar[str] = "audit.list"
    columns = ("at", "who", "action", "merchant_id", "details", "why")
    merchant_id: Annotated[
        int | None, option("Only entries about this merchant.", name="merchant")
    ] = None
    of: Annotated[
        str | None, option("A subject such as `tax`, or an action such as `tax.set`.")
    ] = None
    who: Annotated[str | None, option("Only entries of this operator.")] = None
    since: Annotated[datetime | None, option("Only entries at or after this time (UTC).")] = None
    until: Annotated[datetime | None, option("Only entries before this time (UTC).")] = None
    before: Annotated[UUID | None, option("The last id of the previous page.")] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[AuditEntry]:
        check_list_limit(self.limit)
        await check_merchant(context.database, self.merchant_id)
        check_text_if_given("who", self.who, _WHO_MAX)
        check_text_if_given("of", self.of, _ACTION_MAX)
        scope = AuditScope(
            merchant_id=self.merchant_id,
            action=self.of,
            who=self.who,
            since=as_utc("since", self.since),
            until=as_utc("until", self.until),
            before=self.before,
            limit=self.limit,
        )
        return await audit.list_entries(context.reading, scope)
