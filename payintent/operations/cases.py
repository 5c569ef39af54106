"""Operations that list, show and resolve cases."""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from payintent.domain import ids
from payintent.domain.case import CaseKind
from payintent.domain.errors import (
    BadRequestError,
    ConflictError,
    NotFoundError,
    UnprocessableError,
)
from payintent.domain.operator import Role
from payintent.domain.refund import RefundStatus, RefundStep
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.fields import ListLimit, OfMerchantId, argument, option
from payintent.operations.list_order import ListOrder, check_order, check_pages
from payintent.operations.list_times import MadeSince, MadeUntil, OlderThan, made_between
from payintent.operations.validation import (
    check_list_limit,
    check_merchant,
    check_note,
    parse_before,
    quote_input,
)
from payintent.payments.create_refund import refund_case
from payintent.payments.transitions import lock_payments
from payintent.storage import captures, case_list, case_money, cases, ledger, refunds
from payintent.storage.case_list import CaseListFilter
from payintent.storage.cases import CaseDetails, CaseStanding
from payintent.storage.database import Executor, Tx

_CLOSED = {"accept": "ACCEPTED", "dismiss": "DISMISSED"}
_KINDS_WITHOUT_MONEY = (
    CaseKind.RECONCILIATION,
    CaseKind.REFUND_REVERSED,
    CaseKind.DISPUTE,
    CaseKind.OUTSIDE_REFUND,
    CaseKind.FRAUD_WARNING,
)


CaseId = Annotated[str, argument("Such as case_0351NDickobV3yYH8omp8v.")]


class ListCases(ReadOperation[list[CaseDetails]], frozen=True, kw_only=True):
    """List cases, newest first; open cases also oldest first."""

    action: ClassVar[str] = "case.list"
    columns = (
        *("id", "kind", "status", "merchant_id", "payment_id"),
        *("chain", "amount_minor", "currency", "opened_at"),
    )
    merchant_id: OfMerchantId = None
    status: Annotated[
        Literal["OPEN", "ACCEPTED", "DISMISSED", "REFUNDED", "ALL"],
        option("Only cases with this status; ALL: every case."),
    ] = "OPEN"
    kind: Annotated[CaseKind | None, option("Only this kind.")] = None
    since: MadeSince = None
    until: MadeUntil = None
    older_than: OlderThan = None
    before: Annotated[str | None, option("The last case of the previous page.")] = None
    order: ListOrder = "newest"
    after: Annotated[str | None, option("The last case of the page, oldest first.")] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[CaseDetails]:
        check_list_limit(self.limit)
        check_order(self.order, "status OPEN", self.status == "OPEN")
        check_pages(self.order, self.before, self.after)
        await check_merchant(context.database, self.merchant_id)
        times = await made_between(context.database, self.since, self.until, self.older_than)
        criteria = CaseListFilter(
            merchant_id=self.merchant_id,
            status=None if self.status == "ALL" else self.status,
            kind=self.kind,
            opened_from=times.since,
            opened_before=times.until,
            oldest_first=self.order == "oldest",
            last=parse_before(ids.CASE, self.before) or parse_before(ids.CASE, self.after, "after"),
        )
        return await case_list.list_cases(context.reading, criteria, self.limit)


class ShowCase(ReadOperation[CaseDetails], frozen=True, kw_only=True):
    """Show a case and its money."""

    action: ClassVar[str] = "case.show"
    case_id: CaseId

    async def read(self, context: OperationContext) -> CaseDetails:
        case = await require_case(context.database, self.case_id)
        money = await case_money.get(context.database, case.id)
        details = await read_case_details(context.database, self.case_id)
        return replace(details, expected=money.expected, came=money.came)


class ResolveCase(ChangeOperation[CaseDetails], frozen=True, kw_only=True):
    """Close a case or refund its money; no payment changes and no event is sent.

    A refunded case stays OPEN until the refund has succeeded, and becomes REFUNDED then.
    """

    action: ClassVar[str] = "case.resolve"
    needs_role: ClassVar[Role] = Role.SUPPORT
    is_destructive: ClassVar[bool] = True
    case_id: CaseId
    resolution: Annotated[
        Literal["accept", "dismiss", "refund"],
        argument("`accept`: keep the money; `dismiss`: there is none; `refund`: return it."),
    ]
    note: Annotated[str, option("Stored with the case; default: the reason.", or_reason=True)]
    destination: Annotated[
        str | None, option("For money on a chain: the receiver, if not its payer.")
    ] = None

    def required_role(self) -> Role:
        return Role.FINANCE if self.resolution == "refund" else self.needs_role

    async def check(self, context: OperationContext) -> None:
        check_note(self.note)
        if self.destination is not None and self.resolution != "refund":
            raise BadRequestError("only a refund has a destination")

    async def apply(self, context: OperationContext, tx: Tx) -> CaseDetails:
        case = await require_case(tx, self.case_id)
        if self.resolution == "refund":
            await self._refund(context, tx, case)
        else:
            await _lock(tx, case)
            await cases.close(tx, case.id, _CLOSED[self.resolution], context.who, self.note)
            await ledger.add_resolution(tx, case.id)
        return await read_case_details(tx, self.case_id)

    async def _refund(self, context: OperationContext, tx: Tx, case: CaseStanding) -> None:
        capture_id = case.capture_id
        if capture_id is None or case.credited or case.kind in _KINDS_WITHOUT_MONEY:
            raise UnprocessableError(_explain_no_money(case))
        await _lock(tx, case)
        refund = await refund_case(tx, case.id, capture_id, context.who, self.destination)
        if refund.step is RefundStep.APPROVAL and context.is_agreed:
            await refunds.skip_approval(tx, refund.id)
        await cases.add_note(tx, case.id, self.note)


async def read_case_details(database: Executor, case_id: str) -> CaseDetails:
    standing = await require_case(database, case_id)
    details = await cases.get(database, standing.id)
    assert details is not None  # noqa: S101 - cases are never deleted
    return details


async def require_case(database: Executor, case_id: str) -> CaseStanding:
    parsed = ids.parse_id(ids.CASE, case_id)
    case = await cases.get_standing(database, parsed) if parsed else None
    if case is None:
        raise NotFoundError(f"no case {quote_input(case_id)}")
    return case


async def _lock(tx: Tx, case: CaseStanding) -> None:
    """Lock payment, capture and case, in this order, so that nothing else can decide on the money.

    Raises `CONFLICT` if the case is closed or being refunded, or if money has arrived for it since
    `case` was read.
    """
    if case.payment_id is not None:
        await lock_payments(tx, [case.payment_id])
    if case.capture_id is not None:
        await captures.lock(tx, case.capture_id)
    await cases.lock(tx, case.id)
    current = await cases.get_standing(tx, case.id)
    assert current is not None  # noqa: S101 - cases are never deleted
    if current.status != "OPEN":
        raise ConflictError(f"the case is already {current.status}")
    if current.refund_id is not None and current.refund_status != RefundStatus.FAILED:
        refund_id = ids.format_id(ids.REFUND, current.refund_id)
        raise ConflictError(f"the money of this case is already being refunded: {refund_id}")
    if current.capture_id != case.capture_id:
        raise ConflictError("money has just arrived for this case: review it again")


def _explain_no_money(case: CaseStanding) -> str:
    if case.kind in _KINDS_WITHOUT_MONEY:
        return f"a {case.kind} case holds no money: settle it at the provider, then close it"
    if case.credited:
        return "the money of this case pays a payment: refund the payment"
    return "this case has no money that we are known to hold, so there is nothing to refund"
