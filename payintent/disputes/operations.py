"""The operation that lists disputes."""

from typing import Annotated, ClassVar, Literal
from uuid import UUID

from payintent.disputes import store as dispute_store
from payintent.disputes.store import DisputeDetails, DisputeFilter
from payintent.operators.fields import option
from payintent.operators.operation import OperationContext, PendingList
from payintent.payments.operations import OrderFilter
from payintent.payments.search_store import find_order_payments


class ListDisputes(PendingList[list[DisputeDetails]], frozen=True, kw_only=True):
    """List disputes."""

    action: ClassVar[str] = "dispute.list"
    columns = (
        *("reference", "state", "amount", "currency", "merchant_id", "payment_id", "case_id"),
        "respond_by",
    )
    status: Annotated[
        Literal["RUNNING", "ALL"],
        option("RUNNING for disputes that the bank has not yet decided, or ALL.", any_text=True),
    ] = "RUNNING"
    order_id: OrderFilter = None
    currency: Annotated[str | None, option("Only disputes in this currency, such as THB.")] = None
    before: Annotated[UUID | None, option("The last dispute on the previous page.")] = None
    after: Annotated[
        UUID | None, option("The last dispute on the previous page, if the order is `oldest`.")
    ] = None

    async def read(self, context: OperationContext) -> list[DisputeDetails]:
        times = await self.check_list(context, self.before, self.after)
        criteria = DisputeFilter(
            merchant_id=self.merchant_id,
            only_running=self.status == "RUNNING",
            payment_ids=await find_order_payments(
                context.database, self.order_id, self.merchant_id
            ),
            currency=self.currency,
            created_from=times.since,
            created_before=times.until,
            oldest_first=self.order == "oldest",
            last=self.before or self.after,
        )
        return await dispute_store.list_disputes(context.read_database, criteria, self.limit)
