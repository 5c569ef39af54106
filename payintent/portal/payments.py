"""Portal pages for payments: search, list, history and refunds."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from urllib.parse import urlencode
from uuid import UUID, uuid4

import msgspec
from starlette.responses import Response

from payintent.cases import list_store as case_lists
from payintent.cases.list_store import CaseFilter
from payintent.cases.operations import format_case
from payintent.core import ids
from payintent.core.errors import BadRequestError, ErrorCode, NotFoundError, RefusedError
from payintent.core.money import CURRENCIES, format_display_amount, format_smallest_units
from payintent.db.sealing import find_order_id
from payintent.http.errors import get_http_status
from payintent.http.pagination import write_time_cursor
from payintent.members.model import MemberRight
from payintent.payment_history import store as history_store
from payintent.payment_history.store import HistoryEntry
from payintent.payment_history.timeline import (
    Details,
    describe_attempt,
    describe_payment_amount,
    join_texts,
)
from payintent.payments import schemas
from payintent.payments.list_store import PaymentFilter
from payintent.payments.lookup import list_merchant_payments
from payintent.payments.model import PaymentStatus
from payintent.payments.operations import SearchPayments
from payintent.payments.schemas import read_payment_filter
from payintent.payments.search_store import PaymentRecord
from payintent.payments.serialization import make_payment_fields
from payintent.payments.store import PaymentSnapshot
from payintent.portal.visits import PAGE_ROWS, MemberVisit, member_page, redirect
from payintent.refunds import list_store as refund_lists
from payintent.refunds.create import CreateRefundRequest
from payintent.refunds.lookup import make_refund_fields

_MEMBER_PARTS = 3
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_REFUNDS_MAX = 100
_CASES_MAX = 100
_REFUNDABLE = (PaymentStatus.PAID, PaymentStatus.PARTIALLY_REFUNDED)
#: Query parameters that filter the payment list.
_FILTERS = ("status", "currency", "payer_uid", "created_from", "created_to")
#: Query parameter that opens the filter form. The form is hidden by default, because it loads
#: slowly on phones.
_SHOW_FILTERS = "filters"
#: Shown if a form was changed and submitted again, for example with the back button.
_REUSED_KEY_MESSAGE = (
    "You have already requested a different refund with this form; it is listed here. "
    "Submit the form again to request this refund too."
)


def describe_requester(requested_by: str) -> str:
    """Describe a refund's requester. Only the merchant's own keys and members are identified."""
    parts = requested_by.split(":", _MEMBER_PARTS - 1)
    if parts[0] == "policy":
        return "the automatic refund policy"
    if parts[0] != "merchant":
        return "your payment service provider"
    if len(parts) < _MEMBER_PARTS:
        return "an API key"
    return parts[2] if "@" in parts[2] else f"API key {parts[2]}"


def _make_history_row(entry: HistoryEntry) -> dict[str, object]:
    title, format_details = _FORMATS[entry.kind]
    return {
        "at": entry.at,
        "title": title,
        "text": format_details(entry.details),
        "event_id": entry.id if entry.kind in {"event", "attempt"} else None,
    }


def _describe_amount(details: Details) -> str | None:
    code = details["currency"]
    amount = format_smallest_units(
        int(details["amount_minor"]), code, details.get("decimals"), on_chain="chain" in details
    )
    return None if amount is None else format_display_amount(amount, code)


def _describe_selection(details: Details) -> str:
    fee, tax, currency = details["fee_amount"], details["estimated_tax"], details["currency"]
    return join_texts(
        f"{details['label']} in {details['country']}",
        format_display_amount(details["total_amount"], currency),
        None if fee == "0" else f"fee {format_display_amount(fee, currency)}",
        None if tax == "0" else f"tax {format_display_amount(tax, currency)}",
        f"{details['token']} on {details['chain']}" if "chain" in details else None,
    )


def _describe_transaction(details: Details) -> str:
    block = f"in block {details['block']}" if "block" in details else None
    tx_hash = f"0x{details['tx_hash']}" if "tx_hash" in details else None
    return join_texts(tx_hash, block, f"on {details['chain']}" if "chain" in details else None)


def _describe_refund(details: Details) -> str:
    amount = describe_payment_amount(details) if "amount" in details else "money from a case"
    to = f"to {details['destination']}" if "destination" in details else None
    return join_texts(
        amount,
        to,
        f"by {describe_requester(details['requested_by'])}",
        details.get("reason"),
    )


def _omit_details(_: Details) -> str:
    return ""


_FORMATS: Mapping[str, tuple[str, Callable[[Details], str]]] = {
    "created": (
        "Created",
        lambda details: f"{describe_payment_amount(details)} for buyer {details['payer_uid']}",
    ),
    "selected": ("Payment method selected", _describe_selection),
    "returned": ("Buyer returned from the gateway", _omit_details),
    "posted": ("Transaction submitted", _describe_transaction),
    "seen": ("Transaction seen, not final yet", _describe_transaction),
    "gone": ("Block replaced", _describe_transaction),
    "final": ("Transaction final", _describe_transaction),
    "captured": ("Money received", lambda details: _describe_amount(details) or ""),
    "paid": ("Paid", describe_payment_amount),
    "failed": ("Failed", lambda details: details["failure_reason"]),
    "expired": ("Expired", _omit_details),
    "cancelled": ("Cancelled", _omit_details),
    "event": ("Event", lambda details: join_texts(details["type"], details["state"])),
    "attempt": ("Webhook", describe_attempt),
    "refund": ("Refund requested", _describe_refund),
    "refund-ended": (
        "Refund result",
        lambda details: join_texts(details["status"], details.get("failure_reason")),
    ),
    "refund-final": ("Refund final", _describe_transaction),
    "case": ("Case opened", lambda details: details["kind"]),
    "case-closed": ("Case closed", lambda details: join_texts(details["kind"], details["status"])),
    "dispute": (
        "Disputed by the buyer",
        lambda details: join_texts(_describe_amount(details), details["reason"] or None),
    ),
    "dispute-now": (
        "Dispute updated",
        lambda details: f"{details['state']}, funds {details['funds']}",
    ),
}


@member_page()
async def get_portal_payments(visit: MemberVisit) -> Response:
    query = visit.request.query_params
    text = query.get("q", "").strip()
    export_query = {"q": text} if text else _read_filter_query(visit, *_FILTERS)
    refusal: RefusedError | None = None
    try:
        rows, next_query = await (_search_payments(visit, text) if text else _list_payments(visit))
    except RefusedError as error:
        rows, next_query, refusal = [], None, error
    return visit.render(
        "payments.html",
        "Payments",
        status=get_http_status(refusal) if refusal else 200,
        rows=rows,
        next_query=next_query,
        text=text,
        export_query=f"?{urlencode(export_query)}" if export_query else "",
        shows_filters=any(name in query for name in (_SHOW_FILTERS, *_FILTERS)),
        filters={name: _clean_filter_value(name, query.get(name, "")) for name in _FILTERS},
        statuses=list(PaymentStatus),
        currencies=list(CURRENCIES),
        problem_text=refusal and refusal.message,
    )


@member_page()
async def get_portal_payment(visit: MemberVisit) -> Response:
    return await _render_payment_page(visit, await _load_payment(visit))


@member_page(MemberRight.REFUND)
async def post_refund_form(visit: MemberVisit) -> Response:
    snapshot = await _load_payment(visit)
    form = visit.form
    try:
        body = schemas.CreateRefundBody(
            amount=msgspec.Raw(msgspec.json.encode(form["amount"]) if "amount" in form else b""),
            reason=form.get("reason"),
            destination=form.get("destination"),
        )
        schemas.check_refund_texts(body)
        await visit.context.refund_creator.create(
            CreateRefundRequest(
                merchant_id=visit.merchant_id,
                payment_id=snapshot.payment.id,
                key=_parse_idempotency_key(form.get("key", "")),
                member=visit.session.email,
                amount=schemas.read_refund_amount(body.amount),
                reason=body.reason,
                destination=body.destination,
            )
        )
    except RefusedError as refusal:
        return await _render_payment_page(visit, snapshot, refusal)
    return redirect(visit.request.url.path.removesuffix("/refunds"))


async def _list_payments(visit: MemberVisit) -> tuple[Sequence[object], str | None]:
    context, query = visit.context, _read_filter_query(visit, *_FILTERS, "cursor")
    payment_filter = replace(read_portal_filter(visit, query), limit=PAGE_ROWS)
    snapshots, next_cursor = await list_merchant_payments(
        context.database, context.read_database, payment_filter
    )
    rows = [make_payment_row(snapshot) for snapshot in snapshots]
    if next_cursor is None:
        return rows, None
    return rows, urlencode(query | {"cursor": write_time_cursor(*next_cursor)})


def _read_filter_query(visit: MemberVisit, *names: str) -> dict[str, str]:
    params = visit.request.query_params
    return {name: params[name] for name in names if params.get(name)}


def read_portal_filter(visit: MemberVisit, query: Mapping[str, str]) -> PaymentFilter:
    return read_payment_filter(_convert_days_to_times(query), visit.merchant_id)


def _clean_filter_value(name: str, text: str) -> str:
    if name.startswith("created_") and not _DAY.fullmatch(text):
        return ""
    return text


def _convert_days_to_times(query: Mapping[str, str]) -> dict[str, str]:
    """Convert the dates to UTC times. The range includes the last day."""
    times = {
        name: f"{_read_day(query[name], days)}T00:00:00Z"
        for name, days in (("created_from", 0), ("created_to", 1))
        if name in query
    }
    return {**query, **times}


def _read_day(text: str, days_later: int) -> date:
    try:
        return date.fromisoformat(text) + timedelta(days=days_later)
    except (ValueError, OverflowError):
        raise BadRequestError("Enter the date as YYYY-MM-DD, for example 2026-11-23.") from None


async def _search_payments(visit: MemberVisit, text: str) -> tuple[Sequence[object], str | None]:
    before = visit.request.query_params.get("before") or None
    if before is not None:
        await _find_payment(visit, before)  # reject the ids of other merchants' payments
    payments = await search_payments(visit, text, before, PAGE_ROWS + 1)
    rows = payments[:PAGE_ROWS]
    if len(payments) <= PAGE_ROWS:
        return rows, None
    return rows, urlencode({"q": text, "before": rows[-1].id})


async def search_payments(
    visit: MemberVisit, text: str, before: str | None, limit: int
) -> list[PaymentRecord]:
    search = SearchPayments(text=text, merchant_id=visit.merchant_id, before=before, limit=limit)
    return await search.read(visit.context.operation_context)


def make_payment_row(snapshot: PaymentSnapshot) -> dict[str, object]:
    """Return the list template's fields. Search results provide the same fields as attributes."""
    payment = snapshot.payment
    return {
        "id": ids.format_id(ids.PAYMENT, payment.id),
        "created_at": payment.created_at,
        "order_id": find_order_id(payment.metadata),
        "payer_uid": payment.payer_uid,
        "amount": payment.amount_text,
        "currency": payment.currency,
        "status": payment.status,
    }


async def _load_payment(visit: MemberVisit) -> PaymentSnapshot:
    return await _find_payment(visit, visit.request.path_params["payment_id"])


async def _find_payment(visit: MemberVisit, payment_id: str) -> PaymentSnapshot:
    """Return a payment; raise `NOT_FOUND` if it does not exist or belongs to another merchant."""
    lookup = visit.context.payment_lookup
    try:
        return await lookup.get_merchant_payment(
            visit.merchant_id, ids.parse_id(ids.PAYMENT, payment_id)
        )
    except RefusedError as refusal:
        if refusal.code is not ErrorCode.FORBIDDEN:
            raise
        raise NotFoundError("no such payment") from None


async def _render_payment_page(
    visit: MemberVisit, snapshot: PaymentSnapshot, refusal: RefusedError | None = None
) -> Response:
    payment = snapshot.payment
    database = visit.context.database
    refunds = await refund_lists.list_for_payment(database, payment.id, None, _REFUNDS_MAX)
    cases = await case_lists.list_for_merchant(
        database, CaseFilter(merchant_id=visit.merchant_id, payment_ids=[payment.id]), _CASES_MAX
    )
    history = await history_store.list_entries(database, payment.id)
    is_key_reused = refusal is not None and refusal.code is ErrorCode.IDEMPOTENCY_CONFLICT
    return visit.render(
        "payment.html",
        "Payment",
        status=get_http_status(refusal) if refusal else 200,
        payment=make_payment_fields(payment, snapshot.session),
        quote=None if snapshot.session is None else snapshot.session.quote,
        order_id=find_order_id(payment.metadata),
        metadata=payment.metadata,
        history=[_make_history_row(entry) for entry in history.entries if entry.kind in _FORMATS],
        refunds=[
            make_refund_fields(refund) | {"requester": describe_requester(refund.requested_by)}
            for refund in refunds
        ],
        cases=[format_case(case) for case in cases],
        can_refund=payment.status in _REFUNDABLE and visit.may(MemberRight.REFUND),
        is_on_chain=snapshot.session is not None and snapshot.session.quote.chain is not None,
        key=(not is_key_reused and visit.form.get("key")) or str(uuid4()),
        form_values=visit.form,
        problem_text=_REUSED_KEY_MESSAGE if is_key_reused else refusal and refusal.message,
    )


def _parse_idempotency_key(text: str) -> UUID:
    """Parse the form's idempotency key, so that a double submission refunds only once."""
    try:
        return UUID(text)
    except ValueError:
        raise BadRequestError("Reload the page and try again.") from None
