"""The audit log: who changed what, and why."""

from typing import ClassVar

from payintent.operations.base import Desk, Read
from payintent.operations.validation import check_listed, check_merchant
from payintent.storage import audit
from payintent.storage.audit import Entry


class ListAudit(Read[list[Entry]], frozen=True, kw_only=True):
    """List changes, newest first: of a merchant, of an action (`tax.set`) or a subject (`tax`)."""

    action: ClassVar[str] = "audit.list"
    merchant_id: int | None = None
    of: str | None = None
    limit: int = 20

    async def read(self, desk: Desk) -> list[Entry]:
        """Give them."""
        check_listed(self.limit)
        await check_merchant(desk.database, self.merchant_id)
        return await audit.listed(desk.database, self.merchant_id, self.of, self.limit)
