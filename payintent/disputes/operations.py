"""The operation that lists disputes."""

from typing import Annotated, ClassVar, Literal
from uuid import UUID

from payintent.cases import list_store as case_lists
from payintent.cases.list_store import DisputeDetails, DisputeFilter
from payintent.operators.fields import (
    ListLimit,
    ListOrder,
    MadeSince,
    MadeUntil,
    OfMerchantId,
    OlderThan,
    check_list_limit,
    check_merchant,
    check_order,
    check_pages,
    made_between,
    option,
)
from payintent.operators.operation import OperationContext, ReadOperation


class ListDisputes(ReadOperation[list[DisputeDetails]], frozen=True, kw_only=True):
    """List disputes, newest first; running disputes also oldest first."""

    action: ClassVar[str] = "dispute.list"
    columns = (
        *("reference", "state", "amount", "currency", "merchant_id", "payment_id", "case_id"),
        "respond_by",
    )
    merchant_id: OfMerchantId = None
    status: Annotated[
        Literal["RUNNING", "ALL"],
        option("RUNNING: not decided by the bank yet; ALL: every dispute.", any_text=True),
    ] = "RUNNING"
    currency: Annotated[str | None, option("Only this currency, such as THB.")] = None
    since: MadeSince = None
    until: MadeUntil = None
    older_than: OlderThan = None
    before: Annotated[UUID | None, option("The last dispute of the previous page.")] = None
    order: ListOrder = "newest"
    after: Annotated[UUID | None, option("The last dispute of the page, oldest first.")] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[DisputeDetails]:
        check_list_limit(self.limit)
        check_order(self.order, "status RUNNING", self.status == "RUNNING")
        check_pages(self.order, self.before, self.after)
        await check_merchant(context.database, self.merchant_id)
        times = await made_between(context.database, self.since, self.until, self.older_than)
        criteria = DisputeFilter(
            merchant_id=self.merchant_id,
            running=self.status == "RUNNING",
            currency=self.currency,
            created_from=times.since,
            created_before=times.until,
            oldest_first=self.order == "oldest",
            last=self.before or self.after,
        )
        return await case_lists.list_disputes(context.reading, criteria, self.limit)
