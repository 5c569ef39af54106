"""What waits for a second person: the queue, and the decision on one of it."""

from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.errors import http_status
from payintent.console.access import read_form, signed_in
from payintent.console.context import get_console_context
from payintent.console.listing import ROWS, next_page, queue_order, read_list, read_query
from payintent.console.operation_forms import read_operation
from payintent.console.operations import render_done
from payintent.console.rendering import render
from payintent.console.sessions import OperatorSession
from payintent.domain.errors import ErrorCode, NotFoundError, RefusedError
from payintent.domain.operator import Role
from payintent.operations.approvals import (
    ApprovalView,
    Approve,
    ListApprovals,
    Reject,
    ShowApproval,
)
from payintent.operations.base import ChangeOperation
from payintent.operations.registry import OPERATIONS
from payintent.operations.submit import run_operation, submit
from payintent.storage.database import current_time

_DECISIONS: dict[str, type[ChangeOperation[Any]]] = {"approve": Approve, "reject": Reject}


async def get_approvals(request: Request) -> Response:
    session = await signed_in(request)
    waits = request.query_params.get("status") in (None, "", "WAITING")
    order = queue_order(request, waits=waits)
    wanted = read_query(request, ListApprovals, limit=ROWS, **order)
    found = await read_list(request, session, wanted)
    return render(
        request,
        "approvals.html",
        approvals=found,
        chosen=wanted.status,
        now=await current_time(get_console_context(request).database),
        following=next_page(request, wanted.order, [approval.id for approval in found]),
    )


async def get_approval(request: Request) -> Response:
    session = await signed_in(request)
    return await _approval_page(request, session)


async def post_decision(request: Request) -> Response:
    session = await signed_in(request)
    form = await read_form(request, session)
    kind = _DECISIONS.get(request.path_params["decision"])
    if kind is None:
        raise NotFoundError("there is approve and reject")
    note = form.get("note", "").strip()
    fields = {"approval_id": request.path_params["approval_id"], "note": note}
    actor = replace(session.actor, why=note)
    try:
        operation = read_operation(kind, fields)
        context = get_console_context(request)
        result = await submit(context.operation_context, operation, actor)
    except RefusedError as refused:
        if refused.code is ErrorCode.NOT_FOUND:
            raise
        return await _approval_page(request, session, note, refused)
    return render_done(request, kind, result, back="/approvals")


async def _approval_page(
    request: Request,
    session: OperatorSession,
    note: str = "",
    refused: RefusedError | None = None,
) -> Response:
    context = get_console_context(request)
    operation = ShowApproval(approval_id=request.path_params["approval_id"])
    approval = await run_operation(context.operation_context, operation, session.actor)
    role, least = session.actor.role, _least_role(approval)
    return render(
        request,
        "approval.html",
        status=200 if refused is None else http_status(refused),
        approval=approval,
        now=await current_time(context.database),
        may_decide=role is not None and role.includes(least),
        least=least,
        is_own=approval.proposed_by == session.actor.who,
        note=note,
        refused=None if refused is None else refused.message,
    )


def _least_role(approval: ApprovalView) -> Role:
    """Return the least role that decides it: whoever decides could have proposed it as well."""
    kind = OPERATIONS.get(approval.action)  # None: a refund
    is_higher = kind is not None and kind.needs_role.includes(Approve.needs_role)
    return kind.needs_role if kind is not None and is_higher else Approve.needs_role
