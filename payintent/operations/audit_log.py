"""The audit log: who changed what, and why."""

from typing import ClassVar

from payintent.operations.base import OperationContext, ReadOperation
from payintent.operations.validation import check_list_limit, check_merchant
from payintent.storage import audit
from payintent.storage.audit import AuditEntry


class ListAuditEntries(ReadOperation[list[AuditEntry]], frozen=True, kw_only=True):
    """List changes, newest first: of a merchant, of an action (`tax.set`) or a subject (`tax`)."""

    action: ClassVar[str] = "audit.list"
    merchant_id: int | None = None
    of: str | None = None
    limit: int = 20

    async def read(self, context: OperationContext) -> list[AuditEntry]:
        """Give them."""
        check_list_limit(self.limit)
        await check_merchant(context.database, self.merchant_id)
        return await audit.list_entries(context.database, self.merchant_id, self.of, self.limit)
