"""Cases: captured money that belongs to no payment, and contradictions. Listed, shown, resolved."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, ClassVar, Literal
from uuid import UUID

from payintent.domain import ids
from payintent.domain.case import CaseKind
from payintent.domain.errors import (
    BadRequestError,
    ConflictError,
    NotFoundError,
    UnprocessableError,
)
from payintent.domain.money import format_smallest_units
from payintent.domain.operator import Role
from payintent.domain.refund import RefundStatus, RefundStep
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.fields import ListLimit, OfMerchantId, argument, option
from payintent.operations.json_values import to_hex_or_none
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
from payintent.storage.case_money import CaseMoney
from payintent.storage.cases import CaseDispute, CaseRecord, CaseRefund
from payintent.storage.database import Executor, Tx

_CLOSED = {"accept": "ACCEPTED", "dismiss": "DISMISSED"}
#: About a gateway's own list, or a changed result: there is no money to refund in the case.
_WORDS_ALONE = (
    CaseKind.RECONCILIATION,
    CaseKind.REFUND_REVERSED,
    CaseKind.DISPUTE,
    CaseKind.OUTSIDE_REFUND,
    CaseKind.FRAUD_WARNING,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRefundView:
    id: str
    status: str
    step: str
    failure_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDisputeView:
    reference: str  # the gateway's own
    state: str
    funds: str  # untouched, withdrawn or reinstated
    reason: str
    respond_by: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyView:
    """An amount in units that people read; without one, the decimals of its token are unknown."""

    amount: str | None
    currency: str  # of a token that is not taken: its address
    chain: str | None
    amount_minor: str | None = None

    @property
    def text(self) -> str:
        amount = self.amount or f"{self.amount_minor} smallest units of"
        return f"{amount} {self.currency}" + (f" on {self.chain}" if self.chain else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseView:
    id: str
    kind: str
    status: str
    merchant_id: int | None
    payment_id: str | None
    session_id: str | None
    opened_at: datetime
    closed_at: datetime | None
    closed_by: str | None
    note: str
    account_id: int | None
    reference: str | None
    currency: str | None
    amount_minor: str | None
    chain: str | None
    tx_hash: str | None
    payer: str | None
    token: str | None
    subject: str | None  # what a gateway's own list has, or lacks
    refund_id: str | None  # the refund that it is about
    refund: CaseRefundView | None  # the refund of its money
    dispute: CaseDisputeView | None = None
    came: MoneyView | None = None
    expected: MoneyView | None = None  # by the session's quote; of one case that is shown


_CaseId = Annotated[str, argument("Such as case_0351NDickobV3yYH8omp8v.")]


class ListCases(ReadOperation[list[CaseView]], frozen=True, kw_only=True):
    """List cases, newest first; of the open ones also the oldest first."""

    action: ClassVar[str] = "case.list"
    columns = (
        *("id", "kind", "status", "merchant_id", "payment_id"),
        *("chain", "amount_minor", "currency", "opened_at"),
    )
    merchant_id: OfMerchantId = None
    status: Annotated[
        Literal["OPEN", "ACCEPTED", "DISMISSED", "REFUNDED", "ALL"],
        option("Only cases of this status; ALL: every one."),
    ] = "OPEN"
    kind: Annotated[CaseKind | None, option("Of one kind.")] = None
    since: MadeSince = None
    until: MadeUntil = None
    older_than: OlderThan = None
    before: Annotated[
        str | None, option("The next page: cases before this one, the last of a page.")
    ] = None
    order: ListOrder = "newest"
    after: Annotated[str | None, option("The next page where the oldest come first.")] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[CaseView]:
        """Return cases, newest first; open ones where no status is given."""
        check_list_limit(self.limit)
        check_order(self.order, "status OPEN", self.status == "OPEN")
        check_pages(self.order, self.before, self.after)
        await check_merchant(context.database, self.merchant_id)
        made = await made_between(context.database, self.since, self.until, self.older_than)
        wanted = CaseListFilter(
            merchant_id=self.merchant_id,
            status=None if self.status == "ALL" else self.status,
            kind=self.kind,
            opened_from=made.since,
            opened_before=made.until,
            oldest_first=self.order == "oldest",
            last=parse_before(ids.CASE, self.before) or parse_before(ids.CASE, self.after, "after"),
        )
        records = await case_list.list_cases(context.reading, wanted, self.limit)
        return list(map(_view, records))


class ShowCase(ReadOperation[CaseView], frozen=True, kw_only=True):
    """Show one case, and the money it is about."""

    action: ClassVar[str] = "case.show"
    case_id: _CaseId

    async def read(self, context: OperationContext) -> CaseView:
        found = await _known(context.database, self.case_id)
        money = await case_money.get(context.database, found.id)
        return replace(_view(found), expected=_expected(money), came=_came(money))


class ResolveCase(ChangeOperation[CaseView], frozen=True, kw_only=True):
    """Close a case, or refund it, which closes it when the money has gone back.

    No payment changes, no event goes out.
    A case whose money goes back stays OPEN until it has gone, and is REFUNDED then.
    """

    action: ClassVar[str] = "case.resolve"
    needs_role: ClassVar[Role] = Role.SUPPORT
    is_destructive: ClassVar[bool] = True
    case_id: _CaseId
    resolution: Annotated[
        Literal["accept", "dismiss", "refund"],
        argument("`accept`: the money is kept; `dismiss`: there is none; `refund`: it goes back."),
    ]
    note: Annotated[str, option("Kept with the case; left out: the reason.", or_reason=True)]
    destination: Annotated[
        str | None, option("Of money on a chain: where it goes, if not back to its payer.")
    ] = None

    def required_role(self) -> Role:
        """Return FINANCE for a refund, else the least role of the operation."""
        return Role.FINANCE if self.resolution == "refund" else self.needs_role

    async def check(self, context: OperationContext) -> None:
        check_note(self.note)
        if self.destination is not None and self.resolution != "refund":
            raise BadRequestError("only a refund has a destination")

    async def apply(self, context: OperationContext, tx: Tx) -> CaseView:
        """Resolve the case; raise `CONFLICT` if it is closed."""
        found = await _known(tx, self.case_id)
        if self.resolution == "refund":
            await self._refund(context, tx, found)
        else:
            await _lock(tx, found)
            await cases.close(tx, found.id, _CLOSED[self.resolution], context.who, self.note)
            await ledger.add_resolution(tx, found.id)
        return _view(await _known(tx, self.case_id))

    async def _refund(self, context: OperationContext, tx: Tx, found: CaseRecord) -> None:
        capture_id = found.capture_id
        if capture_id is None or found.credited or found.kind in _WORDS_ALONE:
            raise UnprocessableError(_nothing_held(found))
        await _lock(tx, found)
        refund = await refund_case(tx, found.id, capture_id, context.who, self.destination)
        if refund.step is RefundStep.APPROVAL and context.is_agreed:
            await refunds.skip_approval(tx, refund.id)
        await cases.add_note(tx, found.id, self.note)


async def _known(database: Executor, case_id: str) -> CaseRecord:
    parsed = ids.parse_id(ids.CASE, case_id)
    found = await cases.get(database, parsed) if parsed else None
    if found is None:
        raise NotFoundError(f"no case {quote_input(case_id)}")
    return found


async def _lock(tx: Tx, case: CaseRecord) -> None:
    """Lock payment, capture and case, in this order; raise `CONFLICT` as `_still_open` does.

    So no dispute, and no session that appears, decides about the same money meanwhile. Raise it too
    where money has come for the case since it was read.
    """
    if case.payment_id is not None:
        await lock_payments(tx, [case.payment_id])
    if case.capture_id is not None:
        await captures.lock(tx, case.capture_id)
    present = await _still_open(tx, case.id)
    if present.capture_id != case.capture_id:
        raise ConflictError("money has come for it meanwhile: look at the case again")


async def _still_open(tx: Tx, case_id: UUID) -> CaseRecord:
    """Lock a case; raise `CONFLICT` if it is closed or being refunded."""
    await cases.lock(tx, case_id)
    found = await cases.get(tx, case_id)
    assert found is not None  # noqa: S101 - cases are never deleted
    if found.status != "OPEN":
        raise ConflictError(f"the case is {found.status} already")
    if found.refund is not None and found.refund.status != RefundStatus.FAILED:
        given = ids.format_id(ids.REFUND, found.refund.id)
        raise ConflictError(f"its money is being given back already: {given}")
    return found


def _nothing_held(found: CaseRecord) -> str:
    """Return why there is no money to refund."""
    if found.kind in _WORDS_ALONE:
        return f"a {found.kind} case holds no money: settle it at the provider, then close it"
    if found.credited:
        return "its money pays a payment: refund the payment"
    return "no money of this case is known to be ours: it cannot be given back from here"


def _view(case: CaseRecord) -> CaseView:
    return CaseView(
        id=ids.format_id(ids.CASE, case.id),
        kind=case.kind,
        status=case.status,
        merchant_id=case.merchant_id,
        payment_id=case.payment_id and ids.format_id(ids.PAYMENT, case.payment_id),
        session_id=case.session_id and ids.format_id(ids.SESSION, case.session_id),
        opened_at=case.opened_at,
        closed_at=case.closed_at,
        closed_by=case.closed_by,
        note=case.note,
        account_id=case.account_id,
        reference=case.reference,
        currency=case.currency,
        amount_minor=case.amount_minor,
        chain=case.chain,
        tx_hash=to_hex_or_none(case.tx_hash),
        payer=to_hex_or_none(case.payer),
        token=to_hex_or_none(case.token),
        subject=case.subject,
        refund_id=case.refund_id and ids.format_id(ids.REFUND, case.refund_id),
        refund=case.refund and _refund_view(case.refund),
        dispute=case.dispute and _dispute_view(case.dispute),
        came=_stated(case),
    )


def _stated(case: CaseRecord) -> MoneyView | None:
    currency = case.token_symbol or case.currency or to_hex_or_none(case.token)
    if case.amount_minor is None or currency is None:
        return None
    amount = format_smallest_units(
        int(case.amount_minor),
        currency,
        case.token_decimals,
        on_chain=case.money_chain is not None,
    )
    return MoneyView(
        amount=amount,
        currency=currency,
        chain=case.money_chain,
        amount_minor=case.amount_minor,
    )


def _expected(money: CaseMoney) -> MoneyView | None:
    if money.expected_amount is None or money.expected_currency is None:
        return None
    return MoneyView(
        amount=money.expected_amount,
        currency=money.expected_currency,
        chain=money.expected_chain,
    )


def _came(money: CaseMoney) -> MoneyView | None:
    if money.came_minor is None or money.came_currency is None:
        return None
    amount = format_smallest_units(
        int(money.came_minor),
        money.came_currency,
        money.came_decimals,
        on_chain=money.came_chain is not None,
    )
    return MoneyView(
        amount=amount,
        currency=money.came_currency,
        chain=money.came_chain,
        amount_minor=money.came_minor,
    )


def _refund_view(refund: CaseRefund) -> CaseRefundView:
    return CaseRefundView(
        id=ids.format_id(ids.REFUND, refund.id),
        status=refund.status,
        step=refund.step,
        failure_reason=refund.failure_reason,
    )


def _dispute_view(dispute: CaseDispute) -> CaseDisputeView:
    return CaseDisputeView(
        reference=dispute.reference,
        state=dispute.state,
        funds=dispute.funds,
        reason=dispute.reason,
        respond_by=dispute.respond_by,
    )
