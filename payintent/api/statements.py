"""`GET /balance` and `/statements`: what a merchant is owed, and its closed days; read only."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.context import AppContext
from payintent.api.etag import json_response
from payintent.api.merchant_access import merchant_route
from payintent.api.pagination import (
    page_response,
    read_id_cursor,
    read_limit,
    read_offset_cursor,
    write_id_cursor,
    write_offset_cursor,
)
from payintent.domain.currencies import TENDER
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.money import format_smallest_units
from payintent.json_format import format_timestamp
from payintent.operations.statements import line_view, require_statement, statement_view
from payintent.storage import statements
from payintent.storage.api_keys import AuthenticatedMerchant
from payintent.storage.statements import Statement, StatementFilter, StatementLine

_AMOUNTS = (
    *("opening", "payments", "fees", "tax", "refunds", "disputes", "adjustments", "payouts"),
    "closing",
)


@merchant_route
async def get_balance(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    """`GET /balance`: what the merchant is owed now, in each currency that ever moved."""
    del request
    balances = await statements.list_balances(app.service.database, merchant.merchant_id)
    return json_response({"data": [balance_fields(balance) for balance in balances]})


@merchant_route
async def list_statements(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    """`GET /statements?currency=&limit=&cursor=`: newest first, a page at a time."""
    limit = read_limit(request.query_params.get("limit"))
    wanted = StatementFilter(
        merchant_id=merchant.merchant_id,
        currency=read_statement_currency(request.query_params.get("currency")),
        before=read_id_cursor(request.query_params.get("cursor")),
    )
    found = await statements.list_statements(app.service.database, wanted, limit + 1)
    return page_response(found, limit, _statement_fields, lambda last: write_id_cursor(last.id))


@merchant_route
async def get_statement(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    """`GET /statements/{id}?limit=&cursor=`: the statement, and a page of its lines."""
    database = app.service.database
    statement = await require_statement(
        database, request.path_params["statement_id"], merchant.merchant_id
    )
    limit = read_limit(request.query_params.get("limit"))
    skipped = read_offset_cursor(request.query_params.get("cursor"))
    lines = await statements.list_lines(database, statement, skipped, limit + 1)
    answer = _statement_fields(statement)
    answer["lines"] = [_line_fields(statement, line) for line in lines[:limit]]
    if len(lines) > limit:
        answer["next_cursor"] = write_offset_cursor(skipped + limit)
    return json_response(answer)


def balance_fields(balance: statements.MerchantBalance) -> dict[str, Any]:
    on_chain = balance.chain != ""
    amount = format_smallest_units(
        balance.amount_minor, balance.currency, balance.token_decimals, on_chain=on_chain
    )
    chain = {"chain": balance.chain} if on_chain else {}
    return {"currency": balance.currency, **chain, "amount": amount or str(balance.amount_minor)}


def _statement_fields(statement: Statement) -> dict[str, Any]:
    view = statement_view(statement)
    return {
        "id": view.id,
        "currency": view.currency,
        **({"chain": view.chain} if view.chain else {}),
        "number": view.number,
        "day": view.day.isoformat(),
        "time_zone": view.time_zone,
        **{name: getattr(view, name) for name in _AMOUNTS},
        "created_at": format_timestamp(view.created_at),
    }


def _line_fields(statement: Statement, line: StatementLine) -> dict[str, Any]:
    view = line_view(statement, line)
    payment = {"payment_id": view.payment_id} if view.payment_id else {}
    return {
        "at": view.at,
        "kind": view.kind,
        "fact": view.fact,
        "id": view.id,
        **payment,
        **{name: getattr(view, name) for name in ("amount", "fee", "tax", "net")},
    }


def read_statement_currency(raw: str | None) -> str | None:
    """Check the currency to filter by; raise `BAD_REQUEST` for one that there is none of."""
    if raw is not None and raw not in TENDER:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"currency must be one of {', '.join(TENDER)}")
    return raw
