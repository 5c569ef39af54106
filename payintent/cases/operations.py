"""Operations that list and show cases."""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from payintent.cases import list_store as case_lists
from payintent.cases import store as case_store
from payintent.cases.list_store import CaseDetails, CaseFilter
from payintent.cases.model import CaseKind
from payintent.cases.store import CaseStanding
from payintent.core import ids
from payintent.core.errors import NotFoundError
from payintent.db.database import Executor
from payintent.operators.fields import (
    argument,
    option,
    parse_before,
    quote_input,
)
from payintent.operators.operation import OperationContext, PendingList, ReadOperation

CaseId = Annotated[str, argument("Such as case_0351NDickobV3yYH8omp8v.")]


class ListCases(PendingList[list[CaseDetails]], frozen=True, kw_only=True):
    """List cases, newest first; open cases also oldest first."""

    action: ClassVar[str] = "case.list"
    columns = (
        *("id", "kind", "status", "merchant_id", "payment_id"),
        *("chain", "amount_minor", "currency", "opened_at"),
    )
    status: Annotated[
        Literal["OPEN", "ACCEPTED", "DISMISSED", "REFUNDED", "ALL"],
        option("Only cases with this status; ALL: every case."),
    ] = "OPEN"
    kind: Annotated[CaseKind | None, option("Only this kind.")] = None
    before: Annotated[str | None, option("The last case of the previous page.")] = None
    after: Annotated[str | None, option("The last case of the page, oldest first.")] = None

    async def read(self, context: OperationContext) -> list[CaseDetails]:
        pending = "status OPEN", self.status == "OPEN"
        times = await self.check_list(context, self.before, self.after, pending)
        criteria = CaseFilter(
            merchant_id=self.merchant_id,
            status=None if self.status == "ALL" else self.status,
            kind=self.kind,
            opened_from=times.since,
            opened_before=times.until,
            oldest_first=self.order == "oldest",
            last=parse_before(ids.CASE, self.before) or parse_before(ids.CASE, self.after, "after"),
        )
        return await case_lists.list_cases(context.reading, criteria, self.limit)


class ShowCase(ReadOperation[CaseDetails], frozen=True, kw_only=True):
    """Show a case and its money."""

    action: ClassVar[str] = "case.show"
    case_id: CaseId

    async def read(self, context: OperationContext) -> CaseDetails:
        case = await require_case(context.database, self.case_id)
        details = await case_lists.get(context.database, case.id)
        money = await case_lists.get_money(context.database, case.id)
        return replace(details, expected=money.expected, came=money.came)


async def read_case_details(database: Executor, case_id: str) -> CaseDetails:
    return await case_lists.get(database, (await require_case(database, case_id)).id)


async def require_case(database: Executor, case_id: str) -> CaseStanding:
    parsed = ids.parse_id(ids.CASE, case_id)
    case = await case_store.get_standing(database, parsed) if parsed else None
    if case is None:
        raise NotFoundError(f"no case {quote_input(case_id)}")
    return case
