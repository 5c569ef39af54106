"""The pages of cases: the queue, and one case with what was expected beside what came."""

from starlette.requests import Request
from starlette.responses import Response

from payintent.console.access import signed_in
from payintent.console.context import get_console_context
from payintent.console.listing import (
    ROWS,
    link_operation,
    next_page,
    queue_order,
    read_list,
    read_query,
    typed,
)
from payintent.console.page_action import PageAction, offer
from payintent.console.rendering import render
from payintent.console.sessions import OperatorSession
from payintent.domain.case import CaseKind
from payintent.domain.operator import Role
from payintent.operations.cases import CaseView, ListCases, ResolveCase, ShowCase
from payintent.storage.database import current_time

#: What has happened, for the person who decides.
MEANINGS = {
    CaseKind.ORPHAN_CAPTURE: "Money came for a session that the buyer had left.",
    CaseKind.LATE_PAYMENT: "Money came after the payment had ended without it.",
    CaseKind.DOUBLE_PAYMENT: "Money came again for a paid payment.",
    CaseKind.AMOUNT_MISMATCH: "Another amount or currency came than was asked for.",
    CaseKind.TOKEN_MISMATCH: "Another token came than was asked for.",
    CaseKind.UNKNOWN_REFERENCE: "Money may have come for a session that nobody knows.",
    CaseKind.DISPUTE: "The bank of a buyer asks for the money of a payment back.",
    CaseKind.OUTSIDE_REFUND: "Money was refunded at the gateway, and nobody requested that here.",
    CaseKind.FRAUD_WARNING: "The issuer of the card warns that the payment is fraudulent.",
    CaseKind.UNDECIDED: "The payment has ended, and whether money comes was not decided then.",
    CaseKind.REFUND_REVERSED: "A gateway takes back that a refund has succeeded.",
    CaseKind.RECONCILIATION: "What is known elsewhere, and what is known here, differ.",
}
_STATUSES = ("OPEN", "ACCEPTED", "DISMISSED", "REFUNDED", "ALL")


async def get_cases(request: Request) -> Response:
    session = await signed_in(request)
    waits = request.query_params.get("status") in (None, "", "OPEN")
    order = queue_order(request, waits=waits)
    wanted = read_query(request, ListCases, limit=ROWS, **order)
    found = await read_list(request, session, wanted)
    return render(
        request,
        "cases.html",
        typed=typed(request),
        cases=found,
        now=await current_time(get_console_context(request).reading),
        statuses=_STATUSES,
        which=wanted.status,
        kinds=[kind.value for kind in CaseKind],
        following=next_page(request, wanted.order, [row.id for row in found]),
    )


async def get_case_page(request: Request) -> Response:
    session = await signed_in(request)
    case = await read_list(request, session, ShowCase(case_id=request.path_params["case_id"]))
    return render(
        request,
        "case.html",
        case=case,
        meaning=MEANINGS[CaseKind(case.kind)],
        now=await current_time(get_console_context(request).reading),
        actions=_actions(session, case),
    )


def _actions(session: OperatorSession, case: CaseView) -> list[PageAction]:
    """Return how the case can be decided by this operator; a refund needs FINANCE."""
    if case.status != "OPEN":
        return []
    role = session.actor.role
    is_finance = role is not None and role.includes(Role.FINANCE)
    ways = [("Accept: the money is kept", "accept"), ("Dismiss: there is none", "dismiss")]
    if is_finance:
        ways.append(("Refund: it goes back", "refund"))
    return offer(
        (label, link_operation(session, ResolveCase, case_id=case.id, resolution=resolution))
        for label, resolution in ways
    )
