"""Pages of the case queue, and of a case with the expected and the received money."""

from starlette.responses import Response

from payintent.console.access import OperatorVisit
from payintent.console.listing import has_status, link_operation, next_page, read_queue
from payintent.console.page_action import PageAction, offer
from payintent.domain.case import CaseKind
from payintent.domain.operator import Role
from payintent.operations.cases import ListCases, ResolveCase, ShowCase
from payintent.storage.cases import CaseDetails
from payintent.storage.database import current_time

#: Explanations for the operator.
MEANINGS = {
    CaseKind.ORPHAN_CAPTURE: "Money arrived for a session that the buyer had left.",
    CaseKind.LATE_PAYMENT: "Money arrived after the payment had ended unpaid.",
    CaseKind.DOUBLE_PAYMENT: "More money arrived for a payment that was already paid.",
    CaseKind.AMOUNT_MISMATCH: "The received amount or currency differs from the requested amount.",
    CaseKind.TOKEN_MISMATCH: "The received token differs from the requested token.",
    CaseKind.UNKNOWN_REFERENCE: "Money may have arrived for an unknown session.",
    CaseKind.DISPUTE: "The buyer's bank claims the money of a payment back.",
    CaseKind.OUTSIDE_REFUND: "Money was refunded at the gateway without a request here.",
    CaseKind.FRAUD_WARNING: "The card issuer warns that the payment is fraudulent.",
    CaseKind.UNDECIDED: "The payment ended before it was clear whether money would arrive.",
    CaseKind.REFUND_REVERSED: "A gateway reversed a refund that had succeeded.",
    CaseKind.RECONCILIATION: "Our records differ from those of a gateway or a chain.",
}
_STATUSES = ("OPEN", "ACCEPTED", "DISMISSED", "REFUNDED", "ALL")


async def get_cases(visit: OperatorVisit) -> Response:
    operation = read_queue(visit, ListCases, is_pending=has_status(visit, "OPEN"))
    cases = await visit.read(operation)
    return visit.render(
        "cases.html",
        typed=visit.query,
        cases=cases,
        now=await current_time(visit.context.reading),
        statuses=_STATUSES,
        which=operation.status,
        kinds=[kind.value for kind in CaseKind],
        following=next_page(visit, operation.order, [case.id for case in cases]),
    )


async def get_case_page(visit: OperatorVisit) -> Response:
    case = await visit.read(ShowCase(case_id=visit.request.path_params["case_id"]))
    return visit.render(
        "case.html",
        case=case,
        meaning=MEANINGS[CaseKind(case.kind)],
        now=await current_time(visit.context.reading),
        actions=_actions(visit, case),
    )


def _actions(visit: OperatorVisit, case: CaseDetails) -> list[PageAction]:
    """Return the decisions that the operator may make; a refund needs FINANCE."""
    if case.status != "OPEN":
        return []
    resolutions = [("Accept: keep the money", "accept"), ("Dismiss: no money arrived", "dismiss")]
    role = visit.actor.role
    if role is not None and role.includes(Role.FINANCE):
        resolutions.append(("Refund the money", "refund"))
    return offer(
        (label, link_operation(visit, ResolveCase, case_id=case.id, resolution=resolution))
        for label, resolution in resolutions
    )
