"""The operation that lists disputes."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar, Literal
from uuid import UUID

from payintent.domain import ids
from payintent.domain.money import format_smallest_units
from payintent.operations.base import OperationContext, ReadOperation
from payintent.operations.fields import ListLimit, OfMerchantId, option
from payintent.operations.list_order import ListOrder, check_order, check_pages
from payintent.operations.list_times import MadeSince, MadeUntil, OlderThan, made_between
from payintent.operations.validation import check_list_limit, check_merchant
from payintent.storage import case_list
from payintent.storage.case_list import DisputeFilter, DisputeRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeView:
    id: UUID
    reference: str  # the gateway's id of the dispute
    state: str
    funds: str  # untouched, withdrawn or reinstated
    amount: str | None
    amount_minor: str
    currency: str
    reason: str
    respond_by: datetime | None
    case_id: str
    case_status: str
    payment_id: str | None
    merchant_id: int | None
    account_id: int
    created_at: datetime
    updated_at: datetime


class ListDisputes(ReadOperation[list[DisputeView]], frozen=True, kw_only=True):
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
    currency: Annotated[str | None, option("Of one currency, such as THB.")] = None
    since: MadeSince = None
    until: MadeUntil = None
    older_than: OlderThan = None
    before: Annotated[UUID | None, option("The last dispute of the previous page.")] = None
    order: ListOrder = "newest"
    after: Annotated[UUID | None, option("The last dispute of the page, oldest first.")] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[DisputeView]:
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
        records = await case_list.list_disputes(context.reading, criteria, self.limit)
        return list(map(_to_view, records))


def _to_view(dispute: DisputeRecord) -> DisputeView:
    return DisputeView(
        id=dispute.id,
        reference=dispute.reference,
        state=dispute.state,
        funds=dispute.funds,
        amount=format_smallest_units(
            int(dispute.amount_minor), dispute.currency, None, on_chain=False
        ),
        amount_minor=dispute.amount_minor,
        currency=dispute.currency,
        reason=dispute.reason,
        respond_by=dispute.respond_by,
        case_id=ids.format_id(ids.CASE, dispute.case_id),
        case_status=dispute.case_status,
        payment_id=dispute.payment_id and ids.format_id(ids.PAYMENT, dispute.payment_id),
        merchant_id=dispute.merchant_id,
        account_id=dispute.account_id,
        created_at=dispute.created_at,
        updated_at=dispute.updated_at,
    )
