"""Pages of the refund queue, and of a refund."""

from starlette.responses import Response

from payintent.console.access import OperatorVisit
from payintent.console.listing import link_operation, next_page, other_page, read_queue
from payintent.console.page_action import PageAction, offer
from payintent.domain.refund import RefundStatus, RefundStep
from payintent.operations.refunds import (
    ApproveRefund,
    ListRefunds,
    RejectRefund,
    ResendRefund,
    ShowRefund,
)
from payintent.storage.database import current_time
from payintent.storage.refund_reviews import RefundDetails


async def get_refunds(visit: OperatorVisit) -> Response:
    is_pending = visit.request.query_params.get("step") == RefundStep.APPROVAL
    operation = read_queue(visit, ListRefunds, is_pending=is_pending)
    refunds = await visit.read(operation)
    return visit.render(
        "refunds.html",
        typed=visit.query,
        refunds=refunds,
        now=await current_time(visit.context.reading),
        statuses=[status.value for status in RefundStatus],
        steps=[step.value for step in RefundStep],
        waiting=other_page(visit, step="approval", status=None, before=None, order=None),
        following=next_page(visit, operation.order, [refund.id for refund in refunds]),
    )


async def get_refund_page(visit: OperatorVisit) -> Response:
    refund = await visit.read(ShowRefund(refund_id=visit.request.path_params["refund_id"]))
    return visit.render(
        "refund.html",
        refund=refund,
        now=await current_time(visit.context.reading),
        is_own=refund.requested_by == visit.actor.who,
        actions=_actions(visit, refund),
    )


def _actions(visit: OperatorVisit, refund: RefundDetails) -> list[PageAction]:
    """Return the operations on a refund; nobody can approve their own refund."""
    approve = link_operation(visit, ApproveRefund, refund_id=refund.id)
    reject = link_operation(visit, RejectRefund, refund_id=refund.id)
    resend = link_operation(visit, ResendRefund, refund_id=refund.id)
    if refund.step == RefundStep.APPROVAL:
        is_own = refund.requested_by == visit.actor.who
        return offer([("Approve", None if is_own else approve), ("Reject", reject)])
    if refund.step == RefundStep.QUEUED and refund.sent_at is None:
        return offer([("Reject", reject), ("Resend", resend)])
    if refund.step == RefundStep.SENT:
        return offer([("Resend", resend)])
    return []
