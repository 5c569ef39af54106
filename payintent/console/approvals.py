"""Pages for the approval queue, and for a single proposal with its decision."""

from typing import Any

from starlette.responses import Response

from payintent.approvals.operations import (
    ApprovalView,
    Approve,
    ListApprovals,
    Reject,
    ShowApproval,
)
from payintent.console.access import OperatorVisit
from payintent.console.list_links import make_list_links
from payintent.console.lists import read_merchant_names, render_queue
from payintent.console.operation_forms import read_operation
from payintent.console.operation_pages import render_result
from payintent.core.access import Role
from payintent.core.errors import ErrorCode, NotFoundError, RefusedError
from payintent.db.database import get_current_time
from payintent.http.errors import get_http_status
from payintent.operations import OPERATIONS
from payintent.operators.operation import ChangeOperation

_DECISIONS: dict[str, type[ChangeOperation[Any]]] = {"approve": Approve, "reject": Reject}


async def get_approvals(visit: OperatorVisit) -> Response:
    return await render_queue(
        visit, "approvals.html", "approvals", ListApprovals, pending_status="WAITING"
    )


async def get_approval(visit: OperatorVisit) -> Response:
    return await _render_approval(visit)


async def post_decision(visit: OperatorVisit) -> Response:
    kind = _DECISIONS.get(visit.request.path_params["decision"])
    if kind is None:
        raise NotFoundError("the decision must be approve or reject")
    note = visit.form.get("note", "").strip()
    fields = {"approval_id": visit.request.path_params["approval_id"], "note": note}
    try:
        result = await visit.submit(read_operation(kind, fields), reason=note)
    except RefusedError as refusal:
        if refusal.code is ErrorCode.NOT_FOUND:
            raise
        return await _render_approval(visit, note, refusal)
    back = f"/approvals{make_list_links(visit.request)['list_query']}"
    return render_result(visit, kind, result, back=back)


async def _render_approval(
    visit: OperatorVisit, note: str = "", refusal: RefusedError | None = None
) -> Response:
    approval_id: str = visit.request.path_params["approval_id"]
    approval = await visit.read(ShowApproval(approval_id=approval_id))
    role, minimum_role = visit.actor.role, _get_minimum_role(approval)
    return visit.render(
        "approval.html",
        status=200 if refusal is None else get_http_status(refusal),
        approval=approval,
        merchant_names=await read_merchant_names(visit, [approval]),
        now=await get_current_time(visit.context.database),
        may_decide=role is not None and role.includes(minimum_role),
        minimum_role=minimum_role,
        is_own=approval.proposed_by == visit.actor.name,
        note=note,
        refusal=None if refusal is None else refusal.message,
    )


def _get_minimum_role(approval: ApprovalView) -> Role:
    """Return the lowest role that may both propose the operation and decide on proposals."""
    kind = OPERATIONS.get(approval.action)  # None for refunds
    if kind is not None and kind.needs_role.includes(Approve.needs_role):
        return kind.needs_role
    return Approve.needs_role
