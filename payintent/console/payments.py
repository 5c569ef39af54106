"""Pages for payment search, the payment list and a payment's history."""

import json
from collections.abc import Mapping
from functools import partial
from operator import itemgetter
from typing import Any
from uuid import UUID

from starlette.responses import RedirectResponse, Response

from payintent.console.access import OperatorVisit
from payintent.console.lists import (
    PAGE_ROWS,
    change_query,
    get_operation_url,
    read_merchant_names,
    read_query,
)
from payintent.console.operation_pages import make_page_actions
from payintent.console.rendering import to_plain
from payintent.console.today import FINAL_STATUSES
from payintent.core import ids
from payintent.core.countries import COUNTRY_NAMES
from payintent.core.errors import RefusedError
from payintent.core.money import CURRENCIES
from payintent.db.sealing import find_order_id
from payintent.http.errors import get_http_status
from payintent.merchants.methods_operations import ChangePaymentMethod
from payintent.payment_history import store as history_store
from payintent.payment_history.operations import ShowTimeline, summarize_payment
from payintent.payment_history.timeline import KINDS, TimelineEntry, TimelinePage
from payintent.payment_sessions.operations import EndPayment
from payintent.payments.list_store import PaymentFilter
from payintent.payments.model import Payment, PaymentStatus
from payintent.payments.operations import CancelPayment, ListPayments, PaymentPage, SearchPayments
from payintent.payments.search_store import PaymentRecord, find_by_order, list_records
from payintent.payments.store import require_payment
from payintent.quotes.operations import ExplainQuotes, describe_countries
from payintent.refunds.operations import RefundPayment
from payintent.refunds.resolve_case import ResolveCase
from payintent.webhooks.operations import ResendEvent

#: Maximum number of related payments on a payment's page, and of payments scanned to find them.
_RELATED_MAX, _RELATED_SCANNED_MAX = 10, 1_000
_METHOD_KINDS = ("card", "redirect", "qr", "onchain")
#: Match types that identify a single payment.
_UNIQUE_MATCHES = frozenset(
    {"payment", "checkout", "session", "refund", "case", "event", "transaction", "reference"}
)
_REFUNDABLE = frozenset({PaymentStatus.PAID, PaymentStatus.PARTIALLY_REFUNDED})
#: Titles for the kinds of timeline entries whose names are not suitable as titles.
TITLES = {
    "attempt": "Webhook attempt",
    "captured": "Money captured",
    "case": "Case opened",
    "closing": "Session closing",
    "denied": "Denied by a fraud rule",
    "dispute": "Dispute opened",
    "dispute-now": "Dispute updated",
    "final": "Transaction final",
    "gateway-call": "Gateway request",
    "gone": "Transaction removed",
    "posted": "Transaction submitted",
    "posted-settled": "Transaction settled",
    "refund": "Refund requested",
    "refund-call": "Refund request to the gateway",
    "returned": "Buyer returned",
    "seen": "Transaction seen",
    "selected": "Method selected",
    "silent": "Gateway did not respond",
}
#: Entry details that the page already shows elsewhere.
_SHOWN_ELSEWHERE = frozenset({"body", "answer", "what"})


async def get_payments(visit: OperatorVisit) -> Response:
    """`GET /payments`: search by text or filters, newest payments first.

    Redirects to the payment if the text identifies a single payment.
    """
    query = visit.request.query_params
    text = query.get("text", "").strip()
    page, refusal = PaymentPage(payments=[], next_before=None), None
    try:
        if text:
            search = read_query(visit, SearchPayments, limit=PAGE_ROWS)
            payments = await visit.read(search)
            is_single = len(payments) == 1 and search.before is None
            if is_single and payments[0].found_by in _UNIQUE_MATCHES:
                url = f"/payments/{payments[0].id}"
                return RedirectResponse(url, 303, {"Cache-Control": "no-store"})
            last_id = payments[-1].id if len(payments) == PAGE_ROWS else None
            page = PaymentPage(payments=payments, next_before=last_id)
        else:
            operation = read_query(visit, ListPayments, limit=PAGE_ROWS)
            page = await operation.read_page(visit.context.operation_context)
    except RefusedError as error:
        refusal = error
    return visit.render(
        "payments.html",
        status=200 if refusal is None else get_http_status(refusal),
        page=page,
        merchant_names=await read_merchant_names(visit, page.payments),
        refusal=None if refusal is None else refusal.message,
        form_values=visit.query,
        text=text,
        statuses=[status.value for status in PaymentStatus],
        currencies=sorted(CURRENCIES),
        kinds=_METHOD_KINDS,
        ends=FINAL_STATUSES,
        older_url=page.next_before and change_query(visit, before=page.next_before),
        first_page_url=change_query(visit, before=None) if query.get("before") else None,
    )


async def get_payment(visit: OperatorVisit) -> Response:
    payment_id: str = visit.request.path_params["payment_id"]
    operation = read_query(visit, ShowTimeline, payment_id=payment_id)
    payment = await summarize_payment(visit.context.database, payment_id)
    snapshot = await require_payment(visit.context.database, payment_id)
    session = snapshot.session
    timeline: TimelinePage = await visit.read(operation)
    explain = read_query(visit, ExplainQuotes, payment_id=payment_id)
    return visit.render(
        "payment.html",
        explanations=await visit.read(explain),
        may_change_methods=visit.allows(ChangePaymentMethod),
        describe_countries=describe_countries,
        country=explain.country,
        country_names=dict(sorted(COUNTRY_NAMES.items(), key=itemgetter(1))),
        selected_country=f"{session.quote.country}, as selected" if session else "All countries",
        payment=payment,
        deposits=to_plain(payment["deposits"]),
        quote=None if session is None else session.quote,
        order_id=find_order_id(snapshot.payment.metadata),
        merchant_names=await read_merchant_names(visit, [snapshot.payment]),
        metadata=indent_json(snapshot.payment.metadata),
        related_payments=await _list_related_payments(visit, snapshot.payment),
        actions=await _list_actions(visit, payment),
        entries=[_make_timeline_row(entry) for entry in timeline.entries],
        timeline=timeline,
        kinds=list(KINDS),
        of=operation.of,
        link=partial(change_query, visit),
    )


def indent_json(text: str) -> str:
    """Indent JSON; return other text unchanged."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


async def _list_related_payments(visit: OperatorVisit, payment: Payment) -> list[PaymentRecord]:
    """Return the newest other payments of the merchant for the same order."""
    order_id = find_order_id(payment.metadata)
    if order_id is None:
        return []
    database, merchant_id = visit.context.database, payment.merchant_id
    candidates = await find_by_order(database, order_id, merchant_id, _RELATED_SCANNED_MAX)
    payment_filter = PaymentFilter(merchant_id=merchant_id, limit=_RELATED_MAX + 1)
    records = await list_records(database, candidates, payment_filter)
    payment_id = ids.format_id(ids.PAYMENT, payment.id)
    return [record for record in records if record.id != payment_id][:_RELATED_MAX]


async def _list_actions(visit: OperatorVisit, payment: Mapping[str, Any]) -> list[dict[str, str]]:
    payment_id, status = payment["id"], payment["status"]
    get_url = partial(get_operation_url, visit)
    links: list[tuple[str, str | None]] = []
    if status in _REFUNDABLE:
        links.append(("Refund payment", get_url(RefundPayment, payment_id=payment_id)))
    if status == PaymentStatus.PENDING:
        links.append(("Cancel payment", get_url(CancelPayment, payment_id=payment_id)))
    if status == PaymentStatus.PROCESSING:
        links.append(("End payment", get_url(EndPayment, payment_id=payment_id)))
    links.extend(
        (f"Resolve {case['kind']}", get_url(ResolveCase, case_id=case["id"]))
        for case in payment["cases"]
        if case["status"] == "OPEN"
    )
    links.extend(
        ("Resend event", get_url(ResendEvent, event_id=event_id))
        for event_id in await _list_event_ids(visit, payment_id)
    )
    return make_page_actions(links)


async def _list_event_ids(visit: OperatorVisit, payment_id: str) -> list[UUID]:
    payment_uuid = ids.parse_id(ids.PAYMENT, payment_id)
    assert payment_uuid is not None  # noqa: S101 - a payment with this id was read
    subjects = await history_store.list_subject_ids(visit.context.database, payment_uuid)
    return [subject_id for kind, subject_id in subjects if kind == "event"]


def _make_timeline_row(entry: TimelineEntry) -> dict[str, Any]:
    details = entry.details
    return {
        "entry": entry,
        "title": TITLES.get(entry.what) or entry.what.replace("-", " ").capitalize(),
        "request_body": indent_json(details["body"]) if "body" in details else None,
        "response": details.get("answer") or None,
        "other_details": {
            name.replace("_", " "): value if isinstance(value, str) else json.dumps(value)
            for name, value in details.items()
            if name not in _SHOWN_ELSEWHERE
        },
    }
