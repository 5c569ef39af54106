"""CSV exports of the portal's lists, with the same filters as the pages."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from starlette.responses import Response

from payintent.cases.list_store import MerchantCase
from payintent.cases.operations import format_case
from payintent.core import ids
from payintent.db.sealing import find_order_id
from payintent.http.exports import Export, read_pages, stream_export
from payintent.members.model import MemberRight
from payintent.merchants.call_log import ApiCallRecord
from payintent.operators.export_log import record_export
from payintent.payment_links.create import make_link_fields
from payintent.payment_links.store import LinkWithUses, list_for_merchant
from payintent.payments import search_store
from payintent.payments import store as payment_store
from payintent.payments.lookup import list_merchant_payments
from payintent.payments.serialization import make_payment_fields
from payintent.payments.store import PaymentSnapshot
from payintent.portal import lists, payments
from payintent.portal.visits import PAGE_ROWS, MemberVisit, member_page
from payintent.refunds.lookup import make_refund_fields
from payintent.refunds.model import Refund
from payintent.webhooks.outbox_store import DeliveryRecord

T = TypeVar("T")
_PAYMENT_PAGE_ROWS = 100  # see `PaymentFilter.limit`
_MICROSECONDS_PER_MS = 1_000
_PAYMENT_COLUMNS = (
    *("id", "created_at", "updated_at", "status", "failure_reason", "order_id", "payer_uid"),
    *("amount", "currency", "refunded_amount", "method", "country", "provider", "chain"),
    *("quote_total_amount", "quote_currency", "fee_amount", "tax_amount", "paid_at"),
)
_REFUND_COLUMNS = (
    *("id", "created_at", "updated_at", "status", "failure_reason", "payment_id", "order_id"),
    *("amount", "currency", "reason", "destination", "requested_by"),
)
_CASE_COLUMNS = (
    *("id", "opened_at", "closed_at", "status", "kind", "payment_id", "order_id", "amount"),
    *("currency", "dispute_state", "dispute_funds", "dispute_reason", "dispute_respond_by"),
)
_EVENT_COLUMNS = (
    *("id", "occurred_at", "type", "payment_id", "order_id", "state", "attempts"),
    "next_attempt_at",
)
_CALL_COLUMNS = ("at", "method", "route", "status", "error_code", "duration_ms", "request_id")
#: The filters of each list, which the audit log records. A search ignores the other filters.
_FILTERS = {
    "payments": ("status", "currency", "payer_uid", "created_from", "created_to"),
    "refunds": ("status", "order_id"),
    "cases": ("status", "kind", "order_id"),
    "events": ("state", "order_id"),
}
_LINK_COLUMNS = (
    *("id", "created_at", "status", "title", "order_id", "currency", "amount", "amount_min"),
    *("amount_max", "uses", "max_uses", "expires_at", "deactivated_at", "url", "return_url"),
    *("cancel_url", "description"),
)
#: A row with the order id of its payment.
_Ordered = tuple[T, str | None]


@member_page()
async def get_payments_export(visit: MemberVisit) -> Response:
    text = visit.request.query_params.get("q", "").strip()
    pages = _read_matches(visit, text) if text else _read_payments(visit)
    return await _stream(visit, "payments", _PAYMENT_COLUMNS, pages, _make_payment_fields)


async def _read_payments(visit: MemberVisit) -> AsyncGenerator[Sequence[PaymentSnapshot]]:
    context, query = visit.context, lists.read_filters(visit)
    query.pop("cursor", None)
    payment_filter = payments.read_portal_filter(visit, query)
    payment_filter = replace(payment_filter, limit=_PAYMENT_PAGE_ROWS)
    has_more = True
    while has_more:
        snapshots, last = await list_merchant_payments(
            context.database, context.read_database, payment_filter
        )
        payment_filter, has_more = replace(payment_filter, before=last), last is not None
        yield snapshots


async def _read_matches(visit: MemberVisit, text: str) -> AsyncGenerator[Sequence[PaymentSnapshot]]:
    before: str | None = None
    while records := await payments.search_payments(visit, text, before, _PAYMENT_PAGE_ROWS):
        payment_ids = [ids.parse_id(ids.PAYMENT, record.id) for record in records]
        snapshots = await payment_store.get_batch(
            visit.context.database, [payment_id for payment_id in payment_ids if payment_id]
        )
        yield [
            snapshot
            for snapshot in snapshots
            if snapshot is not None and payment_store.is_readable(snapshot.payment)
        ]
        before = records[-1].id


def _make_payment_fields(snapshot: PaymentSnapshot) -> dict[str, Any]:
    fields = make_payment_fields(snapshot.payment, snapshot.session)
    quote = snapshot.session and snapshot.session.quote
    fields |= {
        "order_id": find_order_id(snapshot.payment.metadata),
        "method": quote and quote.label,
        "country": quote and quote.country,
        "chain": quote and quote.chain,
        "quote_currency": quote and quote.price.currency,
    }
    return {name: fields.get(name) for name in _PAYMENT_COLUMNS}


@member_page()
async def get_refunds_export(visit: MemberVisit) -> Response:
    query = lists.read_filters(visit)

    async def read_page(last: _Ordered[Refund] | None, limit: int) -> list[_Ordered[Refund]]:
        before = None
        if last is not None:
            by_update = lists.is_sorted_by_update(query)
            before = lists.get_refund_position(last[0]) if by_update else last[0].id
        return await _add_order_ids(visit, await lists.list_refunds(visit, query, before, limit))

    return await _stream(
        visit, "refunds", _REFUND_COLUMNS, read_pages(read_page), _make_refund_fields
    )


def _make_refund_fields(row: _Ordered[Refund]) -> dict[str, Any]:
    refund, order_id = row
    fields = make_refund_fields(refund) | {
        "order_id": order_id,
        "requested_by": payments.describe_requester(refund.requested_by),
    }
    return {name: fields.get(name) for name in _REFUND_COLUMNS}


@member_page()
async def get_cases_export(visit: MemberVisit) -> Response:
    query = lists.read_filters(visit)

    async def read_page(
        last: _Ordered[MerchantCase] | None, limit: int
    ) -> list[_Ordered[MerchantCase]]:
        before = last and last[0].id
        return await _add_order_ids(visit, await lists.list_cases(visit, query, before, limit))

    return await _stream(visit, "cases", _CASE_COLUMNS, read_pages(read_page), _make_case_fields)


def _make_case_fields(row: _Ordered[MerchantCase]) -> dict[str, Any]:
    case, order_id = row
    fields = format_case(case)
    dispute = {f"dispute_{name}": value for name, value in fields.pop("dispute", {}).items()}
    fields |= dispute | {"order_id": order_id}
    return {name: fields.get(name) for name in _CASE_COLUMNS}


@member_page()
async def get_events_export(visit: MemberVisit) -> Response:
    return await _stream(visit, "events", _EVENT_COLUMNS, _read_events(visit), _make_event_fields)


async def _read_events(visit: MemberVisit) -> AsyncGenerator[Sequence[_Ordered[DeliveryRecord]]]:
    """Yield pages of events.

    Lists of pending or delivered events do not go back further than `SCANNED_MAX` events, so all
    events are read instead.
    """
    query, state = lists.read_filters(visit), None
    if query.get("state") in ("pending", "delivered"):
        state = query.pop("state")

    async def read_page(last: DeliveryRecord | None, limit: int) -> list[DeliveryRecord]:
        return await lists.list_events(visit, query, last and last.event_id, limit)

    async for events in read_pages(read_page):
        matches = [event for event in events if state in (None, event.state)]
        yield await _add_order_ids(visit, matches)


def _make_event_fields(row: _Ordered[DeliveryRecord]) -> dict[str, Any]:
    event, order_id = row
    return {
        "id": str(event.event_id),
        "occurred_at": event.occurred_at,
        "type": event.type,
        "payment_id": event.payment_id,
        "order_id": order_id,
        "state": event.state,
        "attempts": event.attempts,
        "next_attempt_at": event.next_at if event.state == "pending" else None,
    }


@member_page(MemberRight.MANAGE_PAYMENT_LINKS)
async def get_payment_links_export(visit: MemberVisit) -> Response:
    context = visit.context

    async def read_page(last: LinkWithUses | None, limit: int) -> list[LinkWithUses]:
        before = last and last.link.id
        return await list_for_merchant(context.database, visit.merchant_id, before, limit)

    def make_fields(stored: LinkWithUses) -> dict[str, Any]:
        fields = make_link_fields(stored, context.settings.pages_base)
        return {name: fields.get(name) for name in _LINK_COLUMNS}

    # Counting the uses of a link is slow, so the pages are short.
    pages = read_pages(read_page, PAGE_ROWS)
    return await _stream(visit, "payment-links", _LINK_COLUMNS, pages, make_fields)


@member_page(MemberRight.SEE_CALLS)
async def get_calls_export(visit: MemberVisit) -> Response:
    query = lists.read_filters(visit)

    async def read_page(last: ApiCallRecord | None, limit: int) -> list[ApiCallRecord]:
        before = last and (last.at, last.id)
        return await lists.list_calls(visit, query, before, limit)

    return await _stream(
        visit, "api-calls", _CALL_COLUMNS, read_pages(read_page), _make_call_fields
    )


def _make_call_fields(call: ApiCallRecord) -> dict[str, Any]:
    return {
        "at": call.at,
        "method": call.method,
        "route": call.route,
        "status": call.status,
        "error_code": call.error_code,
        "duration_ms": f"{call.duration_us / _MICROSECONDS_PER_MS:.1f}",
        "request_id": call.request_id,
    }


async def _stream(
    visit: MemberVisit,
    name: str,
    columns: Sequence[str],
    pages: AsyncGenerator[Sequence[T]],
    make_fields: Callable[[T], Mapping[str, Any]],
) -> Response:
    filters = _read_recorded_filters(visit, name)
    name = f"test-{name}" if visit.in_test else name
    export = Export(name=name, columns=columns, pages=pages, make_fields=make_fields)
    target = visit.make_export_target()
    record = partial(
        record_export,
        visit.context.database,
        visit.actor,
        visit.merchant_id,
        name,
        target.extension,
        filters,
    )
    return await stream_export(export, target, record)


def _read_recorded_filters(visit: MemberVisit, name: str) -> dict[str, Any]:
    query = lists.read_filters(visit)
    if name == "payments" and query.get("q", "").strip():
        return {"q": query["q"]}
    if name == "api-calls":
        return {"failed": True} if "failed" in query else {}
    return {field: query[field] for field in _FILTERS.get(name, ()) if field in query}


async def _add_order_ids(visit: MemberVisit, rows: Sequence[Any]) -> list[_Ordered[Any]]:
    payment_ids = [_format_payment_id(row.payment_id) for row in rows]
    order_ids = await search_store.list_order_ids(visit.context.database, payment_ids)
    return [
        (row, payment_id and order_ids.get(payment_id))
        for row, payment_id in zip(rows, payment_ids, strict=True)
    ]


def _format_payment_id(payment_id: UUID | str | None) -> str | None:
    return ids.format_id(ids.PAYMENT, payment_id) if isinstance(payment_id, UUID) else payment_id
