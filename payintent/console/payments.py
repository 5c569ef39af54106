"""The page that finds and lists payments."""

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from payintent.api.errors import http_status
from payintent.console.access import signed_in
from payintent.console.context import get_console_context
from payintent.console.listing import ROWS, other_page, read_list, read_query, typed
from payintent.console.rendering import render
from payintent.console.today_figures import ENDS
from payintent.domain.currencies import CURRENCIES
from payintent.domain.errors import RefusedError
from payintent.domain.payment import PaymentStatus
from payintent.operations.search_payments import ListPayments, PaymentPage, SearchPayments

_KINDS = ("card", "redirect", "qr", "onchain")
#: What leads to a payment and to nothing else.
_SURE = frozenset(
    {"payment", "checkout", "session", "refund", "case", "event", "transaction", "reference"}
)
_NOTHING = PaymentPage(payments=[], following=None)


async def get_payments(request: Request) -> Response:
    """`GET /payments`: what a text is about, or payments by filters, newest first.

    A text that names one payment for sure leads to its story.
    """
    session = await signed_in(request)
    text = request.query_params.get("text", "").strip()
    shown: dict[str, Any] = {"page": _NOTHING, "refused": None}
    status = 200
    try:
        if text:
            search = read_query(request, SearchPayments, limit=ROWS)
            found = await read_list(request, session, search)
            if len(found) == 1 and found[0].found_by in _SURE and search.before is None:
                return RedirectResponse(
                    f"/payments/{found[0].id}", 303, {"Cache-Control": "no-store"}
                )
            following = found[-1].id if len(found) == ROWS else None
            shown["page"] = PaymentPage(payments=found, following=following)
        else:
            wanted = read_query(request, ListPayments, limit=ROWS)
            context = get_console_context(request).operation_context
            shown["page"] = await wanted.read_page(context)
    except RefusedError as refused:
        shown["refused"], status = refused.message, http_status(refused)
    following = shown["page"].following
    return render(
        request,
        "payments.html",
        status=status,
        typed=typed(request),
        text=text,
        statuses=[status.value for status in PaymentStatus],
        currencies=sorted(CURRENCIES),
        kinds=_KINDS,
        ends=ENDS,
        older=following and other_page(request, before=following),
        newest=other_page(request, before=None) if request.query_params.get("before") else None,
        **shown,
    )
