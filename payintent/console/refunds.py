"""The pages of refunds: the queue, and one refund with who asked for it."""

from starlette.requests import Request
from starlette.responses import Response

from payintent.console.access import signed_in
from payintent.console.context import get_console_context
from payintent.console.listing import (
    ROWS,
    link_operation,
    next_page,
    other_page,
    queue_order,
    read_list,
    read_query,
    typed,
)
from payintent.console.page_action import PageAction, offer
from payintent.console.rendering import render
from payintent.console.sessions import OperatorSession
from payintent.domain.refund import RefundStatus, RefundStep
from payintent.operations.refunds import (
    ApproveRefund,
    ListRefunds,
    RefundView,
    RejectRefund,
    ResendRefund,
    ShowRefund,
)
from payintent.storage.database import current_time


async def get_refunds(request: Request) -> Response:
    session = await signed_in(request)
    waits = request.query_params.get("step") == RefundStep.APPROVAL
    order = queue_order(request, waits=waits)
    wanted = read_query(request, ListRefunds, limit=ROWS, **order)
    found = await read_list(request, session, wanted)
    return render(
        request,
        "refunds.html",
        typed=typed(request),
        refunds=found,
        now=await current_time(get_console_context(request).reading),
        statuses=[status.value for status in RefundStatus],
        steps=[step.value for step in RefundStep],
        waiting=other_page(request, step="approval", status=None, before=None, order=None),
        following=next_page(request, wanted.order, [row.id for row in found]),
    )


async def get_refund_page(request: Request) -> Response:
    session = await signed_in(request)
    operation = ShowRefund(refund_id=request.path_params["refund_id"])
    refund = await read_list(request, session, operation)
    return render(
        request,
        "refund.html",
        refund=refund,
        now=await current_time(get_console_context(request).reading),
        is_own=refund.requested_by == session.actor.who,
        actions=_actions(session, refund),
    )


def _actions(session: OperatorSession, refund: RefundView) -> list[PageAction]:
    """Return what can be done with a refund; who asked for it cannot approve it."""
    approve = link_operation(session, ApproveRefund, refund_id=refund.id)
    reject = link_operation(session, RejectRefund, refund_id=refund.id)
    resend = link_operation(session, ResendRefund, refund_id=refund.id)
    if refund.step == RefundStep.APPROVAL:
        is_own = refund.requested_by == session.actor.who
        return offer([("Approve", None if is_own else approve), ("Reject", reject)])
    if refund.step == RefundStep.QUEUED and refund.sent_at is None:
        return offer([("Reject", reject), ("Send again", resend)])
    if refund.step == RefundStep.SENT:
        return offer([("Send again", resend)])
    return []
