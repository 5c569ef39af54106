"""Pages for cases, disputes and refunds, with the decisions that operators can make."""

from typing import Any

from starlette.responses import Response

from payintent.cases.list_store import CaseDetails
from payintent.cases.model import CaseKind
from payintent.cases.operations import ListCases, ShowCase
from payintent.console.access import OperatorVisit
from payintent.console.lists import (
    change_query,
    get_operation_url,
    read_merchant_names,
    read_order_ids,
    render_queue,
)
from payintent.console.operation_pages import make_page_actions
from payintent.console.rendering import format_operation_title
from payintent.core.access import Role
from payintent.db.database import get_current_time
from payintent.disputes.operations import ListDisputes
from payintent.operators.operation import ChangeOperation
from payintent.refunds.approval_operations import ApproveRefund, RejectRefund, is_rejectable
from payintent.refunds.list_store import RefundDetails
from payintent.refunds.model import RefundStatus, RefundStep
from payintent.refunds.operations import ListRefunds, ResendRefund, ShowAddressLink, ShowRefund
from payintent.refunds.resolve_case import ResolveCase

#: Explanation of each case kind.
EXPLANATIONS = {
    CaseKind.ORPHAN_CAPTURE: "Money arrived for a session that the buyer had left.",
    CaseKind.LATE_PAYMENT: "Money arrived after the payment had failed, expired or been cancelled.",
    CaseKind.DOUBLE_PAYMENT: "More money arrived for a payment that was already paid.",
    CaseKind.AMOUNT_MISMATCH: "The received amount or currency differs from the requested amount.",
    CaseKind.TOKEN_MISMATCH: "The received token differs from the requested token.",
    CaseKind.SURPLUS: "More money arrived at a deposit address than the payment required.",
    CaseKind.UNKNOWN_REFERENCE: "Money may have arrived for an unknown session.",
    CaseKind.DISPUTE: "The buyer's bank disputes a payment and reclaims the money.",
    CaseKind.OUTSIDE_REFUND: "Money was refunded at the gateway without a refund in this service.",
    CaseKind.FRAUD_WARNING: "The card issuer warns that the payment is fraudulent.",
    CaseKind.UNDECIDED: "The payment expired before the gateway reported a result.",
    CaseKind.REFUND_REVERSED: "A gateway reversed a refund that had succeeded.",
    CaseKind.RECONCILIATION: "Our records differ from a gateway's records or from a chain.",
}
_STATUSES = ("OPEN", "ACCEPTED", "DISMISSED", "REFUNDED", "ALL")


async def get_cases(visit: OperatorVisit) -> Response:
    return await render_queue(
        visit,
        "cases.html",
        "cases",
        ListCases,
        pending_status="OPEN",
        statuses=_STATUSES,
        kinds=[kind.value for kind in CaseKind],
    )


async def get_case_page(visit: OperatorVisit) -> Response:
    case = await visit.read(ShowCase(case_id=visit.request.path_params["case_id"]))
    return visit.render(
        "case.html",
        case=case,
        merchant_names=await read_merchant_names(visit, [case]),
        order_ids=await read_order_ids(visit, [case]),
        explanation=EXPLANATIONS[CaseKind(case.kind)],
        now=await get_current_time(visit.context.read_database),
        actions=_list_case_actions(visit, case),
    )


def _list_case_actions(visit: OperatorVisit, case: CaseDetails) -> list[dict[str, str]]:
    """Return the decisions that the operator may make. Refunds require the FINANCE role."""
    if case.status != "OPEN":
        return []
    resolutions = [
        ("Accept: keep the money", "accept"),
        ("Dismiss: no money to keep or refund", "dismiss"),
    ]
    role = visit.actor.role
    if role is not None and role.includes(Role.FINANCE):
        resolutions.append(("Refund the money", "refund"))
    return make_page_actions(
        (label, get_operation_url(visit, ResolveCase, case_id=case.id, resolution=resolution))
        for label, resolution in resolutions
    )


async def get_disputes(visit: OperatorVisit) -> Response:
    return await render_queue(
        visit, "disputes.html", "disputes", ListDisputes, pending_status="RUNNING"
    )


async def get_refunds(visit: OperatorVisit) -> Response:
    return await render_queue(
        visit,
        "refunds.html",
        "refunds",
        ListRefunds,
        is_pending=visit.query.get("step") == RefundStep.APPROVAL,
        statuses=[status.value for status in RefundStatus],
        steps=[step.value for step in RefundStep],
        waiting=change_query(visit, step="approval", status=None, before=None, order=None),
    )


async def get_refund_page(visit: OperatorVisit) -> Response:
    refund = await visit.read(ShowRefund(refund_id=visit.request.path_params["refund_id"]))
    return visit.render(
        "refund.html",
        refund=refund,
        merchant_names=await read_merchant_names(visit, [refund]),
        order_ids=await read_order_ids(visit, [refund]),
        now=await get_current_time(visit.context.read_database),
        is_own=refund.requested_by == visit.actor.name,
        actions=_list_refund_actions(visit, refund),
    )


def _list_refund_actions(visit: OperatorVisit, refund: RefundDetails) -> list[dict[str, str]]:
    """Return the available refund operations. Operators cannot approve their own refunds."""
    operations: list[type[ChangeOperation[Any]]] = []
    if refund.step == RefundStep.APPROVAL and refund.requested_by != visit.actor.name:
        operations.append(ApproveRefund)
    is_unsent = refund.step == RefundStep.QUEUED and refund.sent_at is None
    if refund.can_enter_address:
        operations.append(ShowAddressLink)
    if is_rejectable(refund.step, refund.sent_at):
        operations.append(RejectRefund)
    if refund.step == RefundStep.SENT or is_unsent:
        operations.append(ResendRefund)
    return make_page_actions(
        (
            format_operation_title(operation.action),
            get_operation_url(visit, operation, refund_id=refund.id),
        )
        for operation in operations
    )
