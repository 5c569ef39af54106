"""Read-only routes for a merchant's balances and daily statements."""

from dataclasses import asdict, dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.accounting import statements_store as statement_store
from payintent.accounting.statements_operations import (
    format_balance,
    make_line_view,
    make_statement_view,
    parse_statement_currency,
    require_statement,
)
from payintent.accounting.statements_store import Statement, StatementLine
from payintent.db.database import Database
from payintent.http.pagination import (
    read_id_cursor,
    read_limit,
    read_offset_cursor,
    write_id_cursor,
    write_offset_cursor,
)
from payintent.http.responses import json_response, page_response
from payintent.merchants.access import MerchantApi
from payintent.merchants.access_store import AuthenticatedMerchant
from payintent.runtime.json_format import format_timestamp


@dataclass(frozen=True, slots=True)
class StatementRoutes:
    api: MerchantApi
    database: Database

    def routes(self) -> list[Route]:
        return [
            self.api.route("GET", "/v1/balance", self.get_balance),
            self.api.route("GET", "/v1/statements", self.list_statements),
            self.api.route("GET", "/v1/statements/{statement_id}", self.get_statement),
        ]

    async def get_balance(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        """`GET /balance`: the current balance in each currency that has ledger entries."""
        del request
        balances = await statement_store.list_balances(self.database, merchant.merchant_id)
        return json_response({"data": [format_balance(balance) for balance in balances]})

    async def list_statements(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        """`GET /statements?currency=&limit=&cursor=`: statements, newest first."""
        limit = read_limit(request.query_params.get("limit"))
        page = await statement_store.list_statements(
            self.database,
            limit + 1,
            merchant_id=merchant.merchant_id,
            currency=parse_statement_currency(request.query_params.get("currency")),
            before=read_id_cursor(request.query_params.get("cursor")),
        )
        return page_response(page, limit, _format_statement, lambda last: write_id_cursor(last.id))

    async def get_statement(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        """`GET /statements/{id}?limit=&cursor=`: the statement with a page of its lines."""
        statement = await require_statement(
            self.database, request.path_params["statement_id"], merchant.merchant_id
        )
        limit = read_limit(request.query_params.get("limit"))
        offset = read_offset_cursor(request.query_params.get("cursor"))
        lines = await statement_store.list_lines(self.database, statement, offset, limit + 1)
        fields = _format_statement(statement)
        fields["lines"] = [_format_line(statement, line) for line in lines[:limit]]
        if len(lines) > limit:
            fields["next_cursor"] = write_offset_cursor(offset + limit)
        return json_response(fields)


def _format_statement(statement: Statement) -> dict[str, Any]:
    fields = asdict(make_statement_view(statement))
    del fields["merchant_id"]
    return _omit_nulls(fields | {"created_at": format_timestamp(statement.created_at)})


def _format_line(statement: Statement, line: StatementLine) -> dict[str, Any]:
    return _omit_nulls(asdict(make_line_view(statement, line)))


def _omit_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
