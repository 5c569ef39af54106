"""The audit log: who changed what, and why."""

from typing import Annotated, ClassVar

from payintent.operations.base import OperationContext, ReadOperation
from payintent.operations.fields import ListLimit, option
from payintent.operations.validation import check_list_limit, check_merchant
from payintent.storage import audit
from payintent.storage.audit import AuditEntry


class ListAuditEntries(ReadOperation[list[AuditEntry]], frozen=True, kw_only=True):
    """List changes, newest first."""

    action: ClassVar[str] = "audit.list"
    columns = ("at", "who", "action", "merchant_id", "details", "why")
    merchant_id: Annotated[int | None, option("About one merchant.", name="merchant")] = None
    of: Annotated[str | None, option("Of a subject, `tax`, or an action, `tax.set`.")] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[AuditEntry]:
        """Return entries, newest first, filtered by merchant, action and limit."""
        check_list_limit(self.limit)
        await check_merchant(context.database, self.merchant_id)
        return await audit.list_entries(context.reading, self.merchant_id, self.of, self.limit)
