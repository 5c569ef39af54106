"""Portal pages for refunds, cases, events, API keys, statements, the catalog and API calls."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from starlette.responses import Response

from payintent.accounting import statements_operations as statements
from payintent.accounting import statements_store as statement_store
from payintent.accounting.statement_model import Movement, format_fact
from payintent.accounting.statements_store import Statement
from payintent.cases import list_store as case_lists
from payintent.cases.list_store import MerchantCase
from payintent.cases.model import CaseKind
from payintent.cases.operations import format_case, parse_case_filter
from payintent.cases.store import STATUSES
from payintent.core.countries import COUNTRIES, COUNTRY_NAMES
from payintent.core.errors import BadRequestError, NotFoundError
from payintent.http.application import read_path_uuid
from payintent.http.exports import Export, stream_export
from payintent.http.pagination import (
    read_id_cursor,
    read_offset_cursor,
    read_time_cursor,
    write_offset_cursor,
    write_time_cursor,
)
from payintent.members.model import MemberRight
from payintent.merchants import call_log
from payintent.merchants.call_log import ApiCallRecord
from payintent.merchants.model import Market
from payintent.merchants.payable import list_payable_countries
from payintent.payments import search_store
from payintent.portal.payments import describe_requester
from payintent.portal.visits import (
    HEADERS,
    PAGE_ROWS,
    MemberVisit,
    format_next_query,
    member_page,
    redirect,
)
from payintent.refunds import list_store as refund_lists
from payintent.refunds.list_store import MerchantRefundFilter
from payintent.refunds.lookup import make_refund_fields
from payintent.refunds.model import Refund, RefundStatus
from payintent.webhooks import deliveries_store as delivery_store
from payintent.webhooks import outbox_store
from payintent.webhooks.operations import replay_own_event
from payintent.webhooks.outbox_store import DeliveryRecord

_CALLS_MAX = 100
_PAGE_LINES_MAX = 100
_STATEMENT_ROWS_MAX = 10_000_000  # high, because a statement, unlike a list, cannot be filtered
_NO_EVENT = "no such event"


@member_page()
async def get_portal_refunds(visit: MemberVisit) -> Response:
    query = read_filters(visit)
    refunds = await list_refunds(visit, query, _read_refund_cursor(query), PAGE_ROWS + 1)
    next_query = format_next_query([refund.id for refund in refunds], query)
    if is_sorted_by_update(query) and next_query is not None:
        next_cursor = write_time_cursor(*get_refund_position(refunds[PAGE_ROWS - 1]))
        next_query = urlencode({**query, "cursor": next_cursor})
    rows = [
        make_refund_fields(refund)
        | {
            "requester": describe_requester(refund.requested_by),
            "requested_at": refund.created_at,
        }
        for refund in refunds[:PAGE_ROWS]
    ]
    return visit.render(
        "refunds.html",
        "Refunds",
        rows=rows,
        order_ids=await _read_order_ids(visit, rows),
        filters={name: query.get(name, "") for name in ("status", "order_id")},
        statuses=list(RefundStatus),
        next_query=next_query,
        export_query=format_export_query(query),
    )


def _read_refund_cursor(query: Mapping[str, str]) -> UUID | tuple[datetime, UUID] | None:
    cursor = query.get("cursor")
    if cursor is not None and is_sorted_by_update(query):
        return read_time_cursor(cursor)
    return read_id_cursor(cursor)


def is_sorted_by_update(query: Mapping[str, str]) -> bool:
    """Return whether a refund list is sorted by `updated_at` instead of by id."""
    return "status" in query and "order_id" not in query


def get_refund_position(refund: Refund) -> tuple[datetime, UUID]:
    return refund.updated_at, refund.id


async def list_refunds(
    visit: MemberVisit,
    query: Mapping[str, str],
    before: UUID | tuple[datetime, UUID] | None,
    limit: int,
) -> list[Refund]:
    """List refunds, newest first; if filtered only by status, most recently updated first."""
    database, status = visit.context.database, query.get("status")
    if status is not None and status not in set(RefundStatus):
        raise BadRequestError("Select a status from the list.")
    payment_ids = await _find_order_payments(visit, query)
    if isinstance(before, tuple) or (status is not None and payment_ids is None):
        assert not isinstance(before, UUID)  # noqa: S101 - see `is_sorted_by_update`
        criteria = MerchantRefundFilter(merchant_id=visit.merchant_id, status=status, before=before)
        return await refund_lists.list_by_update(database, criteria, limit)
    if payment_ids is not None:
        return await refund_lists.list_for_order(
            database, payment_ids, before, limit, status=status
        )
    return await refund_lists.list_for_merchant(database, visit.merchant_id, before, limit)


async def _find_order_payments(visit: MemberVisit, query: Mapping[str, str]) -> list[UUID] | None:
    return await search_store.find_order_payments(
        visit.context.database, query.get("order_id"), visit.merchant_id
    )


async def _read_order_ids(visit: MemberVisit, rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    payment_ids = [row.get("payment_id") for row in rows]
    return await search_store.list_order_ids(visit.context.database, payment_ids)


@member_page()
async def get_portal_cases(visit: MemberVisit) -> Response:
    query = read_filters(visit)
    before = read_id_cursor(query.get("cursor"))
    cases = await list_cases(visit, query, before, PAGE_ROWS + 1)
    rows = [format_case(case) for case in cases[:PAGE_ROWS]]
    return visit.render(
        "cases.html",
        "Cases",
        rows=rows,
        order_ids=await _read_order_ids(visit, rows),
        next_query=format_next_query([case.id for case in cases], query),
        export_query=format_export_query(query),
        filters={name: query.get(name, "") for name in ("status", "kind", "order_id")},
        statuses=STATUSES,
        kinds=list(CaseKind),
    )


async def list_cases(
    visit: MemberVisit, query: Mapping[str, str], before: UUID | None, limit: int
) -> list[MerchantCase]:
    case_filter = replace(parse_case_filter(query, visit.merchant_id), last=before)
    if (payment_ids := await _find_order_payments(visit, query)) is not None:
        case_filter = replace(case_filter, payment_ids=payment_ids)
    return await case_lists.list_for_merchant(visit.context.database, case_filter, limit)


@member_page()
async def get_portal_events(visit: MemberVisit) -> Response:
    query = read_filters(visit)
    before = read_id_cursor(query.get("cursor"))
    events = await list_events(visit, query, before, PAGE_ROWS + 1)
    rows = events[:PAGE_ROWS]
    payment_ids = [event.payment_id for event in rows]
    return visit.render(
        "events.html",
        "Events",
        events=rows,
        order_ids=await search_store.list_order_ids(visit.context.database, payment_ids),
        next_query=format_next_query([event.event_id for event in events], query),
        export_query=format_export_query(query),
        filters={name: query.get(name, "") for name in ("state", "order_id")},
        states=outbox_store.STATES,
    )


async def list_events(
    visit: MemberVisit, query: Mapping[str, str], before: UUID | None, limit: int
) -> list[DeliveryRecord]:
    state = query.get("state")
    if state is not None and state not in outbox_store.STATES:
        raise BadRequestError("Select a state from the list.")
    return await delivery_store.list_deliveries(
        visit.context.database,
        limit,
        before,
        merchant_id=visit.merchant_id,
        state=state,
        payment_ids=await _find_order_payments(visit, query),
    )


@member_page()
async def get_event(visit: MemberVisit) -> Response:
    event_id = read_path_uuid(visit.request, "event_id", _NO_EVENT)
    database = visit.context.database
    event = await outbox_store.get_event(database, event_id, visit.merchant_id)
    delivery = await delivery_store.get_delivery(database, visit.merchant_id, event_id)
    if event is None or delivery is None:
        raise NotFoundError(_NO_EVENT)
    return visit.render(
        "event.html",
        "Event",
        event=event,
        delivery=delivery,
        payment_id=delivery.payment_id,
        attempts=await outbox_store.list_attempts(database, event.id),
        is_replayed="replayed" in visit.request.query_params,
    )


@member_page(MemberRight.REPLAY)
async def post_replay(visit: MemberVisit) -> Response:
    event_id = read_path_uuid(visit.request, "event_id", _NO_EVENT)
    await replay_own_event(
        visit.context.operation_context, visit.merchant_id, visit.actor, event_id
    )
    return redirect(f"/merchant/events/{event_id}?replayed=1")


@member_page()
async def get_catalog_preview(visit: MemberVisit) -> Response:
    requested_country = visit.request.query_params.get("country") or None
    if requested_country is not None and requested_country not in COUNTRIES:
        raise BadRequestError("Select a country from the list.")
    setup = await visit.context.merchants.get(visit.merchant_id)
    restrictions = await visit.context.policies.get_restrictions()
    markets = tuple(market for _, market in setup.payable_methods.methods)
    countries = list_payable_countries(setup.merchant.market, markets, restrictions, None)
    country = requested_country or next((code for code, _ in countries), "")
    currencies = dict(list_payable_countries(setup.merchant.market, markets, restrictions, country))
    has_crypto = restrictions.allows_crypto(country, country)
    return visit.render(
        "catalog.html",
        "Catalog",
        country=country,
        countries=[(code, COUNTRY_NAMES[code]) for code, _ in countries],
        currencies=currencies.get(country, []),
        methods=[
            method
            for method, market in setup.payable_methods.methods
            if _is_available_in(market, country) and (method.token is None or has_crypto)
        ],
        has_crypto=has_crypto,
    )


@member_page(MemberRight.SEE_CALLS)
async def get_calls(visit: MemberVisit) -> Response:
    """`GET /merchant/calls?failed=`: all API calls or only failed calls, newest first."""
    query = read_filters(visit)
    cursor = query.get("cursor")
    before = None if cursor is None else read_time_cursor(cursor)
    calls = await list_calls(visit, query, before, _CALLS_MAX + 1)
    next_query = None
    if len(calls) > _CALLS_MAX:
        last = calls[_CALLS_MAX - 1]
        next_query = urlencode({**query, "cursor": write_time_cursor(last.at, last.id)})
    return visit.render(
        "calls.html",
        "API calls",
        calls=calls[:_CALLS_MAX],
        only_failed="failed" in query,
        days=visit.context.settings.api_calls_days,
        next_query=next_query,
        export_query=format_export_query(query),
    )


async def list_calls(
    visit: MemberVisit,
    query: Mapping[str, str],
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[ApiCallRecord]:
    return await call_log.list_api_calls(
        visit.context.database, visit.merchant_id, limit, before, only_failed="failed" in query
    )


def read_filters(visit: MemberVisit) -> dict[str, str]:
    return {name: value for name, value in visit.request.query_params.items() if value}


def format_export_query(query: Mapping[str, str]) -> str:
    """Return the query string for an export with these filters that starts at the first row."""
    filters = {name: value for name, value in query.items() if name not in ("cursor", "before")}
    return f"?{urlencode(filters)}" if filters else ""


def _is_available_in(market: Market, country: str) -> bool:
    return market.countries is None or country in market.countries


@member_page(MemberRight.SEE_STATEMENTS)
async def get_portal_statements(visit: MemberVisit) -> Response:
    database, query = visit.context.database, visit.request.query_params
    currency = statements.parse_statement_currency(query.get("currency") or None)
    records = await statement_store.list_statements(
        database,
        PAGE_ROWS + 1,
        merchant_id=visit.merchant_id,
        currency=currency,
        before=read_id_cursor(query.get("cursor")),
    )
    balances = await statement_store.list_balances(database, visit.merchant_id)
    filters = {"currency": currency} if currency else {}
    return visit.render(
        "statements.html",
        "Statements",
        rows=[statements.make_statement_view(statement) for statement in records[:PAGE_ROWS]],
        next_query=format_next_query([statement.id for statement in records], filters),
        balances=[statements.format_balance(balance) for balance in balances],
        movements=[str(movement) for movement in Movement],
        currency=currency or "",
        currencies=sorted({balance.currency for balance in balances or records}),
    )


@member_page(MemberRight.SEE_STATEMENTS)
async def get_portal_statement(visit: MemberVisit) -> Response:
    database, statement = visit.context.database, await _load_statement(visit)
    offset = read_offset_cursor(visit.request.query_params.get("cursor"))
    lines = await statement_store.list_lines(database, statement, offset, _PAGE_LINES_MAX + 1)
    next_query = None
    if len(lines) > _PAGE_LINES_MAX:
        next_query = urlencode({"cursor": write_offset_cursor(offset + _PAGE_LINES_MAX)})
    view = statements.make_statement_view(statement)
    line_views = [statements.make_line_view(statement, line) for line in lines[:_PAGE_LINES_MAX]]
    return visit.render(
        "statement.html",
        f"Statement for {view.day}",
        statement=view,
        movements=[(str(movement), getattr(view, movement)) for movement in Movement],
        lines=[(line, format_fact(line.fact)) for line in line_views],
        next_query=next_query,
        has_pdf=not await statement_store.list_lines(
            database, statement, statements.PDF_LINES_MAX, 1
        ),
    )


@member_page(MemberRight.SEE_STATEMENTS)
async def get_statement_csv(visit: MemberVisit) -> Response:
    database, statement = visit.context.database, await _load_statement(visit)
    export = Export(
        name=_make_file_name(statement),
        columns=statements.LINE_COLUMNS,
        pages=statements.list_line_pages(database, statement),
        make_fields=statements.make_line_fields,
        rows_max=_STATEMENT_ROWS_MAX,
    )
    return await stream_export(export, visit.make_export_target())


@member_page(MemberRight.SEE_STATEMENTS)
async def get_statement_pdf(visit: MemberVisit) -> Response:
    database, statement = visit.context.database, await _load_statement(visit)
    return Response(
        await statements.draw_pdf(database, statement),
        headers=HEADERS
        | {"Content-Disposition": f'attachment; filename="{_make_file_name(statement)}.pdf"'},
        media_type="application/pdf",
    )


def _make_file_name(statement: Statement) -> str:
    return f"statement-{statement.day}-{statement.currency}{statement.chain}"


async def _load_statement(visit: MemberVisit) -> Statement:
    statement_id: str = visit.request.path_params["statement_id"]
    return await statements.require_statement(
        visit.context.database, statement_id, visit.merchant_id
    )
