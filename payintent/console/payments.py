"""The page that searches and lists payments."""

from starlette.responses import RedirectResponse, Response

from payintent.api.errors import http_status
from payintent.console.access import OperatorVisit
from payintent.console.listing import ROWS, other_page, read_query
from payintent.console.today_figures import ENDS
from payintent.domain.currencies import CURRENCIES
from payintent.domain.errors import RefusedError
from payintent.domain.payment import PaymentStatus
from payintent.operations.search_payments import ListPayments, PaymentPage, SearchPayments

_KINDS = ("card", "redirect", "qr", "onchain")
#: Matches that identify a payment exactly.
_EXACT = frozenset(
    {"payment", "checkout", "session", "refund", "case", "event", "transaction", "reference"}
)


async def get_payments(visit: OperatorVisit) -> Response:
    """`GET /payments`: payments by text or by filters, newest first.

    Redirects to the payment if the text identifies it exactly.
    """
    query = visit.request.query_params
    text = query.get("text", "").strip()
    page, refused = PaymentPage(payments=[], following=None), None
    try:
        if text:
            search = read_query(visit, SearchPayments, limit=ROWS)
            payments = await visit.read(search)
            if len(payments) == 1 and payments[0].found_by in _EXACT and search.before is None:
                url = f"/payments/{payments[0].id}"
                return RedirectResponse(url, 303, {"Cache-Control": "no-store"})
            last_id = payments[-1].id if len(payments) == ROWS else None
            page = PaymentPage(payments=payments, following=last_id)
        else:
            operation = read_query(visit, ListPayments, limit=ROWS)
            page = await operation.read_page(visit.context.operation_context)
    except RefusedError as error:
        refused = error
    return visit.render(
        "payments.html",
        status=200 if refused is None else http_status(refused),
        page=page,
        refused=None if refused is None else refused.message,
        typed=visit.query,
        text=text,
        statuses=[status.value for status in PaymentStatus],
        currencies=sorted(CURRENCIES),
        kinds=_KINDS,
        ends=ENDS,
        older=page.following and other_page(visit, before=page.following),
        newest=other_page(visit, before=None) if query.get("before") else None,
    )
