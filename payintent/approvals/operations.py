"""Operations that let a second operator approve or reject proposals and refunds."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

import msgspec

from payintent.core import ids
from payintent.core.access import PROPOSAL_HOURS, Role
from payintent.core.errors import ConflictError, NotFoundError
from payintent.core.texts import format_count
from payintent.db.database import Executor, Tx
from payintent.operators import proposals_store, tokens_store
from payintent.operators.fields import (
    ListLimit,
    ListOrder,
    MerchantFilter,
    argument,
    check_cursor,
    check_list_limit,
    check_merchant,
    check_note,
    option,
    parse_before,
    quote_input,
)
from payintent.operators.operation import (
    Actor,
    ChangeOperation,
    OperationContext,
    ReadOperation,
    check_role,
    copy_fields,
    run,
    to_json_value,
)
from payintent.operators.proposals_store import Proposal
from payintent.refunds.approval_operations import ApproveRefund, RejectRefund
from payintent.refunds.list_store import RefundDetails
from payintent.refunds.model import RefundStep
from payintent.refunds.operations import ListRefunds, ShowRefund
from payintent.runtime.encryption import make_proposal_context

_WAITING = "WAITING"
_REFUND = "refund"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalView:
    """A proposal, or a refund that needs approval."""

    id: str
    action: str
    status: str
    changes: list[str]
    merchant_id: int | None
    proposed_by: str
    why: str  # the requester's reason
    proposed_at: datetime
    expires_at: datetime | None  # None for refunds, which do not expire
    decided_by: str | None
    decided_at: datetime | None
    note: str  # the approver's reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalResult:
    """An approved proposal and its operation's result. Secrets are shown only in this result."""

    approval: ApprovalView
    result: Any


_ApprovalId = Annotated[
    str, argument("An id such as appr_0351NDickobV3yYH8omp8v, or the id of a refund.")
]


class ListApprovals(ReadOperation[list[ApprovalView]], frozen=True, kw_only=True):
    """List proposals and refunds that need approval."""

    action: ClassVar[str] = "approval.list"
    columns = (
        *("id", "action", "status", "changes", "proposed_by", "why"),
        *("decided_by", "note", "expires_at"),
    )
    status: Annotated[
        Literal["WAITING", "APPROVED", "REJECTED", "LAPSED", "ALL"],
        option("The status of the proposals."),
    ] = "WAITING"
    merchant_id: MerchantFilter = None
    before: Annotated[str | None, option("The last id on the previous page.")] = None
    order: ListOrder = "newest"
    after: Annotated[
        str | None, option("The last id on the previous page, if the order is `oldest`.")
    ] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[ApprovalView]:
        """List proposals and, if `status` is WAITING or ALL, the refunds that need approval."""
        check_list_limit(self.limit)
        await check_merchant(context.database, self.merchant_id)
        check_cursor(self.order, self.before, self.after)
        status = None if self.status == "ALL" else self.status
        is_oldest_first = self.order == "oldest"
        before, after = _parse_cursor("before", self.before), _parse_cursor("after", self.after)
        page = await proposals_store.list_proposals(
            context.database,
            before or after,
            self.limit,
            status=status,
            merchant_id=self.merchant_id,
            oldest_first=is_oldest_first,
        )
        views = [make_proposal_view(proposal) for proposal in page]
        if self.status in (_WAITING, "ALL"):
            refunds = await ListRefunds(
                step=RefundStep.APPROVAL,
                merchant_id=self.merchant_id,
                before=before and ids.format_id(ids.REFUND, before),
                order=self.order,
                after=after and ids.format_id(ids.REFUND, after),
                limit=self.limit,
            ).read(context)
            views += map(_make_refund_view, refunds)
        # Without their prefixes, proposal and refund ids sort by creation time.
        views.sort(key=lambda view: view.id.partition("_")[2], reverse=not is_oldest_first)
        return views[: self.limit]


class ShowApproval(ReadOperation[ApprovalView], frozen=True, kw_only=True):
    """Show a proposal and the changes it would make."""

    action: ClassVar[str] = "approval.show"
    approval_id: _ApprovalId

    async def read(self, context: OperationContext) -> ApprovalView:
        if _is_refund(self.approval_id):
            return _make_refund_view(await ShowRefund(refund_id=self.approval_id).read(context))
        proposal = await _require_proposal(context.database, self.approval_id)
        view = make_proposal_view(proposal)
        if proposal.status != _WAITING:
            return view
        operation = _decrypt_operation(context, proposal)
        return replace(
            view, changes=await operation.changes(_make_proposer_context(context, proposal))
        )


class Approve(ChangeOperation[ApprovalResult], frozen=True, kw_only=True):
    """Approve a proposal and run its operation. A new secret is shown only once."""

    action: ClassVar[str] = "approval.approve"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    approval_id: _ApprovalId
    note: Annotated[str, option("A note about the decision; defaults to the reason.")] = ""

    async def changes(self, context: OperationContext) -> list[str]:
        return (await ShowApproval(approval_id=self.approval_id).read(context)).changes

    async def check(self, context: OperationContext) -> None:
        check_note(self.note, required=False)
        if _is_refund(self.approval_id):
            return
        proposal = await _require_proposal(context.database, self.approval_id)
        _check_undecided(proposal)
        operation = _decrypt_operation(context, proposal)
        check_role(context, operation)
        await operation.check(_make_proposer_context(context, proposal))

    async def apply(self, context: OperationContext, tx: Tx) -> ApprovalResult:
        """Run the operation on behalf of its proposer, or approve the refund."""
        if _is_refund(self.approval_id):
            refund_approval = ApproveRefund(refund_id=self.approval_id, note=self.note)
            refund = await run(context, tx, refund_approval)
            return ApprovalResult(approval=_make_refund_view(refund), result=to_json_value(refund))
        proposal = await _lock_undecided(tx, self.approval_id)
        operation = _decrypt_operation(context, proposal)
        await _check_approver(context, tx, proposal, operation)
        approved_context = replace(
            _make_proposer_context(context, proposal), approved_by=context.actor_name
        )
        audit_details = {"approval_id": self.approval_id, "approved_by": context.actor_name}
        result = await run(approved_context, tx, operation, audit_details)
        note = self.note or context.actor.reason
        view = await _record_decision(tx, proposal, "APPROVED", context.actor_name, note)
        return ApprovalResult(approval=view, result=to_json_value(result))

    def get_merchant_id(self, result: ApprovalResult) -> int | None:
        return result.approval.merchant_id

    def audit_details(self, result: ApprovalResult) -> dict[str, object]:
        return _get_audit_details(result.approval)


class Reject(ChangeOperation[ApprovalView], frozen=True, kw_only=True):
    """Reject a proposal, or withdraw your own."""

    action: ClassVar[str] = "approval.reject"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    approval_id: _ApprovalId
    note: Annotated[
        str, option("A note about the decision; defaults to the reason.", defaults_to_reason=True)
    ]

    async def check(self, context: OperationContext) -> None:
        check_note(self.note)

    async def apply(self, context: OperationContext, tx: Tx) -> ApprovalView:
        if _is_refund(self.approval_id):
            rejection = RejectRefund(refund_id=self.approval_id, note=self.note)
            return _make_refund_view(await run(context, tx, rejection))
        proposal = await _lock_undecided(tx, self.approval_id)
        check_role(context, _decrypt_operation(context, proposal))
        return await _record_decision(tx, proposal, "REJECTED", context.actor_name, self.note)

    def audit_details(self, result: ApprovalView) -> dict[str, object]:
        return _get_audit_details(result)


def make_proposal_view(proposal: Proposal) -> ApprovalView:
    return copy_fields(ApprovalView, proposal, id=ids.format_id(ids.APPROVAL, proposal.id))


def _make_refund_view(refund: RefundDetails) -> ApprovalView:
    status = _WAITING
    if refund.step != RefundStep.APPROVAL:
        status = "REJECTED" if refund.failure_reason == "REJECTED" else "APPROVED"
    return ApprovalView(
        id=refund.id,
        action=_REFUND,
        status=status,
        changes=_describe_refund(refund),
        merchant_id=refund.merchant_id,
        proposed_by=refund.requested_by,
        why=refund.reason or "",
        proposed_at=refund.created_at,
        expires_at=None,
        decided_by=refund.approved_by,
        decided_at=None,
        note=refund.note,
    )


def _describe_refund(refund: RefundDetails) -> list[str]:
    amount = refund.amount or f"{format_count(int(refund.amount_minor), 'smallest unit')} of"
    subject = refund.payment_id or refund.case_id or "money without a payment"
    changes = [f"refund {amount} {refund.currency} for {subject} through {refund.provider}"]
    if refund.destination is not None:
        if refund.payer is None:
            relation = "; the payer's address has been erased"
        elif refund.destination == refund.payer:
            relation = ", the payer's address"
        else:
            relation = f", NOT the payer's address {refund.payer}"
        changes.append(f"to {refund.destination} on {refund.chain}{relation}")
    return changes


def _parse_cursor(name: str, text: str | None) -> UUID | None:
    """Parse a list cursor, which is the id of a proposal or a refund."""
    is_refund = text is not None and _is_refund(text)
    return parse_before(ids.REFUND if is_refund else ids.APPROVAL, text, name)


def _is_refund(approval_id: str) -> bool:
    return approval_id.startswith(f"{ids.REFUND}_")


def _get_audit_details(view: ApprovalView) -> dict[str, object]:
    return {"action": view.action, "proposed_by": view.proposed_by}


async def _require_proposal(database: Executor, approval_id: str) -> Proposal:
    proposal_id = ids.parse_id(ids.APPROVAL, approval_id)
    proposal = await proposals_store.get(database, proposal_id) if proposal_id else None
    if proposal is None:
        raise NotFoundError(f"no approval {quote_input(approval_id)}")
    return proposal


async def _lock_undecided(tx: Tx, approval_id: str) -> Proposal:
    """Lock a proposal; raise `CONFLICT` if it has been decided or has expired."""
    proposal_id = (await _require_proposal(tx, approval_id)).id
    proposal = await proposals_store.lock(tx, proposal_id)
    assert proposal is not None  # noqa: S101 - proposals are never deleted
    _check_undecided(proposal)
    return proposal


def _check_undecided(proposal: Proposal) -> None:
    if proposal.status == "LAPSED":
        raise ConflictError(
            f"the proposal expired after {PROPOSAL_HOURS} hours; propose the operation again"
        )
    if proposal.status != _WAITING:
        raise ConflictError(f"the proposal is already {proposal.status}")


async def _check_approver(
    context: OperationContext, tx: Tx, proposal: Proposal, operation: ChangeOperation[Any]
) -> None:
    """Check that the actor may approve the operation.

    The actor's role and the proposer's current role must permit the operation. The actor must not
    be the proposer.
    """
    check_role(context, operation)
    if context.actor_name == proposal.proposed_by and not context.is_exempt:
        raise ConflictError(
            f"an operator other than {quote_input(proposal.proposed_by)}, who proposed it, "
            "must approve the operation"
        )
    role = await tokens_store.find_role(tx, proposal.proposed_by)
    if role is None or not role.includes(operation.required_role()):
        raise ConflictError(
            f"{quote_input(proposal.proposed_by)} may no longer propose this operation; "
            "reject the proposal"
        )


async def _record_decision(
    tx: Tx, proposal: Proposal, status: str, decided_by: str, note: str
) -> ApprovalView:
    await proposals_store.record_decision(tx, proposal.id, status, decided_by, note)
    return make_proposal_view(await _require_proposal(tx, ids.format_id(ids.APPROVAL, proposal.id)))


def _decrypt_operation(context: OperationContext, proposal: Proposal) -> ChangeOperation[Any]:
    operation_type = context.operations.get(proposal.action)
    incompatible_error = ConflictError(
        "this version cannot run the proposal; propose the operation again"
    )
    if (
        operation_type is None
        or proposal.sealed is None
        or not issubclass(operation_type, ChangeOperation)
    ):
        raise incompatible_error
    encryption_context = make_proposal_context(proposal.id, proposal.action, proposal.proposed_by)
    fields = context.encryption.decrypt(proposal.sealed, encryption_context)
    try:
        return msgspec.json.decode(fields, type=operation_type)
    except msgspec.ValidationError as error:
        raise incompatible_error from error


def _make_proposer_context(context: OperationContext, proposal: Proposal) -> OperationContext:
    actor = Actor(proposal.proposed_by, proposal.why, context.actor.role, context.actor.uses_http)
    return replace(context, actor=actor)
