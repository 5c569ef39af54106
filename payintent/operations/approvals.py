"""Proposals and refunds that wait for a second operator: approved or rejected."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

import msgspec

from payintent.domain import ids
from payintent.domain.errors import ConflictError, NotFoundError, RefusedError
from payintent.domain.operator import PROPOSAL_HOURS, Role
from payintent.domain.refund import RefundStep
from payintent.encryption import proposal_context
from payintent.operations.base import (
    Actor,
    ChangeOperation,
    OperationContext,
    ReadOperation,
    check_role,
    run,
)
from payintent.operations.fields import ListLimit, argument, option
from payintent.operations.json_values import to_json_value
from payintent.operations.list_order import ListOrder, check_order, check_pages
from payintent.operations.refunds import (
    ApproveRefund,
    ListRefunds,
    RefundView,
    RejectRefund,
    ShowRefund,
)
from payintent.operations.validation import check_list_limit, check_note, parse_before, quote_input
from payintent.storage import operator_tokens, proposals
from payintent.storage.database import Executor, Tx
from payintent.storage.proposals import Proposal

_WAITING = "WAITING"
_REFUND = "refund"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalView:
    """A proposal, or a refund that waits for a second operator, as an operator reads it."""

    id: str
    action: str
    status: str
    changes: list[str]
    merchant_id: int | None
    proposed_by: str
    why: str
    proposed_at: datetime
    expires_at: datetime | None  # refunds wait until they are decided
    decided_by: str | None
    decided_at: datetime | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """An approved proposal with the result of its operation; secrets in it are shown only now."""

    approval: ApprovalView
    result: Any


_ApprovalId = Annotated[
    str, argument("Such as appr_0351NDickobV3yYH8omp8v, or a refund that waits.")
]


class ListApprovals(ReadOperation[list[ApprovalView]], frozen=True, kw_only=True):
    """List what waits for another person, newest first or oldest first."""

    action: ClassVar[str] = "approval.list"
    columns = ("id", "action", "status", "changes", "proposed_by", "proposed_at", "expires_at")
    status: Annotated[
        Literal["WAITING", "APPROVED", "REJECTED", "LAPSED", "ALL"], option("What became of it.")
    ] = "WAITING"
    before: Annotated[
        str | None, option("The next page: what is before this one, the last of a page.")
    ] = None
    order: ListOrder = "newest"
    after: Annotated[str | None, option("The next page where the oldest come first.")] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[ApprovalView]:
        """Return proposals of a status, and where they may wait also refunds, newest first."""
        check_list_limit(self.limit)
        is_oldest_first = self.order == "oldest"
        check_order(self.order, "status WAITING", self.status == _WAITING)
        check_pages(self.order, self.before, self.after)
        status = None if self.status == "ALL" else self.status
        before, after = _place("before", self.before), _place("after", self.after)
        listed = (
            await proposals.list_waiting(context.database, after, self.limit)
            if is_oldest_first
            else await proposals.list_proposals(context.database, status, before, self.limit)
        )
        views = [proposal_view(proposal) for proposal in listed]
        if self.status in (_WAITING, "ALL"):
            waiting = await ListRefunds(
                step=RefundStep.APPROVAL,
                before=before and ids.format_id(ids.REFUND, before),
                order=self.order,
                after=after and ids.format_id(ids.REFUND, after),
                limit=self.limit,
            ).read(context)
            views += map(_refund_view, waiting)
        # Ids of both are by time: without their prefixes they are one order, that of pages.
        views.sort(key=lambda view: view.id.partition("_")[2], reverse=not is_oldest_first)
        return views[: self.limit]


class ShowApproval(ReadOperation[ApprovalView], frozen=True, kw_only=True):
    """Show one, with what it would change, in words."""

    action: ClassVar[str] = "approval.show"
    approval_id: _ApprovalId

    async def read(self, context: OperationContext) -> ApprovalView:
        if _is_refund(self.approval_id):
            return _refund_view(await ShowRefund(refund_id=self.approval_id).read(context))
        proposal = await _known(context.database, self.approval_id)
        view = proposal_view(proposal)
        if proposal.status != _WAITING:
            return view
        operation = _open(context, proposal)
        return replace(view, changes=await operation.changes(_as_proposer(context, proposal)))


class Approve(ChangeOperation[Approved], frozen=True, kw_only=True):
    """Approve it: it is done at once. A secret that it makes is printed, this once."""

    action: ClassVar[str] = "approval.approve"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    approval_id: _ApprovalId
    note: Annotated[str, option("Kept with it.")] = ""

    async def changes(self, context: OperationContext) -> list[str]:
        return (await ShowApproval(approval_id=self.approval_id).read(context)).changes

    async def check(self, context: OperationContext) -> None:
        check_note(self.note, needed=False)
        if _is_refund(self.approval_id):
            return
        proposal = await _known(context.database, self.approval_id)
        _check_waiting(proposal)
        operation = _open(context, proposal)
        check_role(context, operation)
        await operation.check(_as_proposer(context, proposal))

    async def apply(self, context: OperationContext, tx: Tx) -> Approved:
        """Run the operation in the name of the operator who proposed it."""
        if _is_refund(self.approval_id):
            approval = ApproveRefund(refund_id=self.approval_id, note=self.note)
            refund = await run(context, tx, approval, {})
            return Approved(approval=_refund_view(refund), result=to_json_value(refund))
        proposal = await _waiting(tx, self.approval_id)
        operation = _open(context, proposal)
        await _check_second_person(context, tx, proposal, operation)
        agreed = replace(_as_proposer(context, proposal), approved_by=context.who)
        noted = {"approval_id": self.approval_id, "approved_by": context.who}
        result = await run(agreed, tx, operation, noted)
        decided = await _decide(tx, proposal, "APPROVED", context.who, self.note)
        return Approved(approval=proposal_view(decided), result=to_json_value(result))

    def merchant_id_of(self, result: Approved) -> int | None:
        return result.approval.merchant_id

    def audit_details(self, result: Approved) -> dict[str, object]:
        return _outcome(result.approval)


class Reject(ChangeOperation[ApprovalView], frozen=True, kw_only=True):
    """Reject it; what you have proposed yourself you take back this way."""

    action: ClassVar[str] = "approval.reject"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    approval_id: _ApprovalId
    note: Annotated[str, option("Kept with it; left out: the reason.", or_reason=True)]

    async def check(self, context: OperationContext) -> None:
        check_note(self.note)

    async def apply(self, context: OperationContext, tx: Tx) -> ApprovalView:
        """Reject it; the operation's arguments are deleted."""
        if _is_refund(self.approval_id):
            rejection = RejectRefund(refund_id=self.approval_id, note=self.note)
            return _refund_view(await run(context, tx, rejection, {}))
        proposal = await _waiting(tx, self.approval_id)
        check_role(context, _open(context, proposal))
        return proposal_view(await _decide(tx, proposal, "REJECTED", context.who, self.note))

    def audit_details(self, result: ApprovalView) -> dict[str, object]:
        return _outcome(result)


def proposal_view(proposal: Proposal) -> ApprovalView:
    return ApprovalView(
        id=ids.format_id(ids.APPROVAL, proposal.id),
        action=proposal.action,
        status=proposal.status,
        changes=list(proposal.changes),
        merchant_id=proposal.merchant_id,
        proposed_by=proposal.proposed_by,
        why=proposal.why,
        proposed_at=proposal.proposed_at,
        expires_at=proposal.expires_at,
        decided_by=proposal.decided_by,
        decided_at=proposal.decided_at,
        note=proposal.note,
    )


def _refund_view(refund: RefundView) -> ApprovalView:
    status = _WAITING
    if refund.step != RefundStep.APPROVAL:
        status = "REJECTED" if refund.failure_reason == "REJECTED" else "APPROVED"
    return ApprovalView(
        id=refund.id,
        action=_REFUND,
        status=status,
        changes=_refund_words(refund),
        merchant_id=refund.merchant_id,
        proposed_by=refund.requested_by,
        why=refund.reason or "",
        proposed_at=refund.created_at,
        expires_at=None,
        decided_by=refund.approved_by,
        decided_at=None,
        note=refund.note,
    )


def _refund_words(refund: RefundView) -> list[str]:
    amount = refund.amount or f"{refund.amount_minor} smallest units"
    subject = refund.payment_id or refund.case_id or "money that names no payment"
    words = [f"{amount} {refund.currency} of {subject} go back through {refund.provider}"]
    if refund.destination is not None:
        payer = refund.payer or "whose address is not kept any more"
        whose = "its payer" if refund.destination == refund.payer else "NOT its payer"
        words.append(f"to {refund.destination} on {refund.chain}, {whose} {payer}")
    return words


def _place(name: str, text: str | None) -> UUID | None:
    """Parse the id that the last page ended with: a proposal's, or a refund's."""
    is_refund = text is not None and _is_refund(text)
    return parse_before(ids.REFUND if is_refund else ids.APPROVAL, text, name)


def _is_refund(approval_id: str) -> bool:
    return approval_id.startswith(f"{ids.REFUND}_")


def _outcome(view: ApprovalView) -> dict[str, object]:
    return {"action": view.action, "proposed_by": view.proposed_by}


async def _known(database: Executor, approval_id: str) -> Proposal:
    proposal_id = _parsed(approval_id)
    proposal = await proposals.get(database, proposal_id) if proposal_id else None
    if proposal is None:
        raise _unknown(approval_id)
    return proposal


async def _waiting(tx: Tx, approval_id: str) -> Proposal:
    """Lock a proposal; raise `CONFLICT` if it does not wait for a decision any more."""
    proposal_id = _parsed(approval_id)
    proposal = await proposals.lock(tx, proposal_id) if proposal_id else None
    if proposal is None:
        raise _unknown(approval_id)
    _check_waiting(proposal)
    return proposal


def _check_waiting(proposal: Proposal) -> None:
    if proposal.status == "LAPSED":
        raise ConflictError(f"it was not approved within {PROPOSAL_HOURS} hours: propose it again")
    if proposal.status != _WAITING:
        raise ConflictError(f"it is {proposal.status} already")


async def _check_second_person(
    context: OperationContext, tx: Tx, proposal: Proposal, operation: ChangeOperation[Any]
) -> None:
    """Refuse the proposer, a lesser role, and a proposer who could not propose it any more."""
    check_role(context, operation)
    if context.who == proposal.proposed_by and not context.is_unbound:
        raise ConflictError(
            f"another person than {quote_input(proposal.proposed_by)}, who proposed it, "
            "must approve"
        )
    role = await operator_tokens.role_of(tx, proposal.proposed_by)
    if role is None or not role.includes(operation.required_role()):
        raise ConflictError(
            f"{quote_input(proposal.proposed_by)} may not propose it any more: reject it"
        )


async def _decide(tx: Tx, proposal: Proposal, status: str, who: str, note: str) -> Proposal:
    await proposals.mark_decided(tx, proposal.id, status, who, note)
    decided = await proposals.get(tx, proposal.id)
    assert decided is not None  # noqa: S101 - proposals are never deleted
    return decided


def _open(context: OperationContext, proposal: Proposal) -> ChangeOperation[Any]:
    kind = context.operations.get(proposal.action)
    if kind is None or proposal.sealed is None or not issubclass(kind, ChangeOperation):
        raise ConflictError("this version cannot run it: propose it again")
    encryption_context = proposal_context(proposal.id, proposal.action, proposal.proposed_by)
    fields = context.encryption.decrypt(proposal.sealed, encryption_context)
    try:
        return msgspec.json.decode(fields, type=kind)
    except msgspec.ValidationError as error:
        raise ConflictError("this version cannot run it: propose it again") from error


def _as_proposer(context: OperationContext, proposal: Proposal) -> OperationContext:
    actor = Actor(proposal.proposed_by, proposal.why, context.actor.role, context.actor.over_http)
    return replace(context, actor=actor)


def _parsed(approval_id: str) -> UUID | None:
    return ids.parse_id(ids.APPROVAL, approval_id)


def _unknown(approval_id: str) -> RefusedError:
    return NotFoundError(f"no approval {quote_input(approval_id)}")
