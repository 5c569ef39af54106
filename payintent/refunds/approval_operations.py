"""Operations that approve and reject refunds."""

from datetime import datetime
from typing import Annotated, ClassVar

from payintent.core.access import Role
from payintent.core.errors import ConflictError
from payintent.db.database import Tx
from payintent.operators.fields import check_note, option, quote_input
from payintent.operators.operation import ChangeOperation, OperationContext
from payintent.refunds import list_store as refund_lists
from payintent.refunds import store as refund_store
from payintent.refunds.list_store import RefundDetails
from payintent.refunds.model import RefundFailureReason, RefundStep
from payintent.refunds.operations import (
    RefundId,
    describe_refund,
    lock_by_id,
    read_details,
)


class ApproveRefund(ChangeOperation[RefundDetails], frozen=True, kw_only=True):
    """Approve a refund. The requester cannot approve it."""

    action: ClassVar[str] = "refund.approve"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    refund_id: RefundId
    note: Annotated[
        str,
        option(
            "A note to store with the refund; defaults to the reason. Required if the "
            "destination is not the payer's address."
        ),
    ] = ""

    async def check(self, context: OperationContext) -> None:
        check_note(self.note, required=False)

    async def apply(self, context: OperationContext, tx: Tx) -> RefundDetails:
        refund, now = await lock_by_id(tx, self.refund_id)
        if refund.step is not RefundStep.APPROVAL:
            raise ConflictError(
                f"the refund does not need approval: it is {describe_refund(refund)}"
            )
        if refund.requested_by == context.actor_name:
            requester = quote_input(refund.requested_by)
            raise ConflictError(
                f"an operator other than {requester}, who requested it, must approve the refund"
            )
        details = await read_details(tx, self.refund_id)
        if refund.destination != details.payer:
            check_note(self.note)
        note = self.note or context.actor.reason
        await refund_lists.approve(tx, refund.id, context.actor_name, note, now)
        return await read_details(tx, self.refund_id)


def is_rejectable(step: str, sent_at: datetime | None) -> bool:
    """Return whether a refund is waiting for an address or approval, or was never sent."""
    return step in {RefundStep.ADDRESS, RefundStep.APPROVAL} or (
        step == RefundStep.QUEUED and sent_at is None
    )


class RejectRefund(ChangeOperation[RefundDetails], frozen=True, kw_only=True):
    """Reject a refund that is waiting for an address or approval, or was never sent.

    Its amount is released. The requester can use this operation to withdraw the refund.
    """

    action: ClassVar[str] = "refund.reject"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    refund_id: RefundId
    note: Annotated[
        str,
        option("A note to store with the refund; defaults to the reason.", defaults_to_reason=True),
    ]

    async def check(self, context: OperationContext) -> None:
        check_note(self.note)

    async def apply(self, context: OperationContext, tx: Tx) -> RefundDetails:
        refund, now = await lock_by_id(tx, self.refund_id)
        if not is_rejectable(refund.step, refund.sent_at):
            raise ConflictError(f"the refund cannot be rejected: it is {describe_refund(refund)}")
        await refund_store.mark_failed(tx, refund, RefundFailureReason.REJECTED, None, now)
        await refund_lists.add_note(tx, refund.id, self.note)
        return await read_details(tx, self.refund_id)
