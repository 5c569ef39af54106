"""Pages of a merchant's payments: search, list, history and refunds."""

import re
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import cast
from urllib.parse import urlencode
from uuid import UUID, uuid4

import msgspec
from starlette.responses import Response

from payintent.api import schemas
from payintent.api.cases import case_fields
from payintent.api.errors import http_status
from payintent.api.list_payments import read_payment_filter
from payintent.api.pagination import write_time_cursor
from payintent.domain import ids
from payintent.domain.currencies import CURRENCIES
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.member import MemberRight
from payintent.domain.payment import PaymentStatus
from payintent.operations.search_payments import SearchPayments
from payintent.payments.create_refund import CreateRefundRequest
from payintent.payments.lookup import list_merchant_payments, list_payment_refunds
from payintent.payments.serialization import payment_fields, refund_fields
from payintent.portal.story import read_story, requester
from payintent.portal.visits import PAGE_ROWS, Visit, member_page, redirect
from payintent.storage import merchant_cases
from payintent.storage.merchant_cases import CaseFilter
from payintent.storage.payment_search import PaymentRecord
from payintent.storage.payments import PaymentSnapshot

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_REFUNDS_MAX = 100
_CASES_MAX = 100
_REFUNDABLE = (PaymentStatus.PAID, PaymentStatus.PARTIALLY_REFUNDED)
#: Query parameters that filter the list.
_FILTERS = ("status", "currency", "payer_uid", "created_from", "created_to")
#: Opens the filter form; its date fields and lists are slow on a phone.
_SHOW_FILTERS = "filters"
#: For a form that was changed and sent again, for example after going back in the browser.
_KEY_REUSED = (
    "You have already requested another refund with this form; it is listed here. "
    "Send the form again to request this refund too."
)


@dataclass(frozen=True, slots=True)
class _Row:
    """The fields of `PaymentRecord` that the list shows."""

    id: str
    created_at: datetime
    order_id: str | None
    payer_uid: str
    amount: str
    currency: str
    status: str


@member_page()
async def get_portal_payments(visit: Visit) -> Response:
    query = visit.request.query_params
    text = query.get("q", "").strip()
    problem = None
    try:
        rows, more = await (_search(visit, text) if text else _list(visit))
    except RefusedError as refused:
        rows, more, problem = [], None, refused
    return visit.render(
        "payments.html",
        "Payments",
        status=http_status(problem) if problem else 200,
        rows=rows,
        more=more,
        text=text,
        filtering=any(name in query for name in (_SHOW_FILTERS, *_FILTERS)),
        filters={name: _filter_value(name, query.get(name, "")) for name in _FILTERS},
        statuses=list(PaymentStatus),
        currencies=list(CURRENCIES),
        problem_text=problem and problem.message,
    )


@member_page()
async def get_portal_payment_story(visit: Visit) -> Response:
    return await _payment_page(visit, await _own_payment(visit))


@member_page(MemberRight.REFUND)
async def post_refund_form(visit: Visit) -> Response:
    snapshot = await _own_payment(visit)
    form = visit.form
    try:
        body = schemas.CreateRefundBody(
            amount=msgspec.Raw(msgspec.json.encode(form["amount"]) if "amount" in form else b""),
            reason=form.get("reason"),
            destination=form.get("destination"),
        )
        schemas.check_refund(body)
        await visit.context.refund_creator.create(
            CreateRefundRequest(
                merchant_id=visit.merchant_id,
                payment_id=snapshot.payment.id,
                key=_read_key(form.get("key", "")),
                member=visit.session.email,
                amount=schemas.read_refund_amount(body.amount),
                reason=body.reason,
                destination=body.destination,
            )
        )
    except RefusedError as refused:
        return await _payment_page(visit, snapshot, refused)
    return redirect(visit.request.url.path.removesuffix("/refunds"))


async def _list(visit: Visit) -> tuple[list[_Row], str | None]:
    context, params = visit.context, visit.request.query_params
    query = {name: params[name] for name in (*_FILTERS, "cursor") if params.get(name)}
    payment_filter = replace(
        read_payment_filter(_with_times(query), visit.merchant_id), limit=PAGE_ROWS
    )
    snapshots, following = await list_merchant_payments(
        context.database, context.reading, payment_filter
    )
    rows = [_snapshot_row(snapshot) for snapshot in snapshots]
    if following is None:
        return rows, None
    return rows, urlencode(query | {"cursor": write_time_cursor(*following)})


def _filter_value(name: str, text: str) -> str:
    if name.startswith("created_") and not _DAY.fullmatch(text):
        return ""
    return text


def _with_times(query: dict[str, str]) -> dict[str, str]:
    """Convert days to times in UTC; the last day is included."""
    times = {
        name: f"{_read_day(query[name], days)}T00:00:00Z"
        for name, days in (("created_from", 0), ("created_to", 1))
        if name in query
    }
    return query | times


def _read_day(text: str, days_later: int) -> date:
    try:
        return date.fromisoformat(text) + timedelta(days=days_later)
    except (ValueError, OverflowError):
        raise RefusedError(ErrorCode.BAD_REQUEST, "Enter the day as 2026-11-23.") from None


async def _search(visit: Visit, text: str) -> tuple[list[PaymentRecord], str | None]:
    context = visit.context
    before = visit.request.query_params.get("before") or None
    if before is not None:
        await _find_own(visit, before)
    search = SearchPayments(
        text=text, merchant_id=visit.merchant_id, before=before, limit=PAGE_ROWS + 1
    )
    payments = await search.read(context.operation_context)
    rows = payments[:PAGE_ROWS]
    if len(payments) <= PAGE_ROWS:
        return rows, None
    return rows, urlencode({"q": text, "before": rows[-1].id})


def _snapshot_row(snapshot: PaymentSnapshot) -> _Row:
    payment = snapshot.payment
    return _Row(
        id=ids.format_id(ids.PAYMENT, payment.id),
        created_at=payment.created_at,
        order_id=_order_id(payment.metadata),
        payer_uid=payment.payer_uid,
        amount=payment.amount_text,
        currency=payment.currency,
        status=payment.status,
    )


async def _own_payment(visit: Visit) -> PaymentSnapshot:
    return await _find_own(visit, visit.request.path_params["payment_id"])


async def _find_own(visit: Visit, text: str) -> PaymentSnapshot:
    """Return a payment; raise `NOT_FOUND` also if it belongs to a different merchant."""
    payment_id = ids.parse_id(ids.PAYMENT, text)
    try:
        return await visit.context.payment_lookup.get_merchant_payment(
            visit.merchant_id, payment_id
        )
    except RefusedError as refused:
        if refused.code is not ErrorCode.FORBIDDEN:
            raise
        raise RefusedError(ErrorCode.NOT_FOUND, "no such payment") from None


async def _payment_page(
    visit: Visit, snapshot: PaymentSnapshot, refused: RefusedError | None = None
) -> Response:
    payment = snapshot.payment
    database = visit.context.database
    refunds, _ = await list_payment_refunds(database, payment.id, None, _REFUNDS_MAX)
    cases = await merchant_cases.page(
        database, CaseFilter(merchant_id=visit.merchant_id, payment_id=payment.id), _CASES_MAX
    )
    is_key_reused = refused is not None and refused.code is ErrorCode.IDEMPOTENCY_CONFLICT
    return visit.render(
        "payment.html",
        "Payment",
        status=http_status(refused) if refused else 200,
        payment=payment_fields(payment, snapshot.session),
        order_id=_order_id(payment.metadata),
        metadata=payment.metadata,
        story=await read_story(database, payment),
        refunds=[
            refund_fields(refund) | {"by": requester(refund.requested_by)} for refund in refunds
        ],
        cases=[case_fields(case) for case in cases],
        can_refund=payment.status in _REFUNDABLE and visit.may(MemberRight.REFUND),
        is_on_chain=snapshot.session is not None and snapshot.session.quote.chain is not None,
        key=(not is_key_reused and visit.form.get("key")) or str(uuid4()),
        typed=visit.form,
        problem_text=_KEY_REUSED if is_key_reused else refused and refused.message,
    )


def _order_id(metadata: str) -> str | None:
    fields: object = msgspec.json.decode(metadata)
    order_id = cast("dict[str, object]", fields).get("order_id") if isinstance(fields, dict) else 0
    return order_id if isinstance(order_id, str) else None


def _read_key(text: str) -> UUID:
    """Parse the idempotency key of a form: sending it twice requests a single refund."""
    try:
        return UUID(text)
    except ValueError:
        raise RefusedError(ErrorCode.BAD_REQUEST, "reload the page and try again") from None
