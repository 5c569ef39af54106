"""Merchant API route that lists cases."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.cases import list_store as case_lists
from payintent.cases.operations import format_case, parse_case_filter
from payintent.db.database import Database
from payintent.db.replica import ReadDatabase
from payintent.http.pagination import read_limit, write_id_cursor
from payintent.http.responses import page_response
from payintent.merchants.access import MerchantApi
from payintent.merchants.access_store import AuthenticatedMerchant


@dataclass(frozen=True, slots=True)
class CaseRoutes:
    api: MerchantApi
    database: Database
    read_database: ReadDatabase

    def routes(self) -> list[Route]:
        return [self.api.route("GET", "/v1/cases", self.list_cases)]

    async def list_cases(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        """`GET /cases?status=&kind=&payment_id=&limit=&cursor=`: newest first."""
        limit = read_limit(request.query_params.get("limit"))
        case_filter = parse_case_filter(request.query_params, merchant.merchant_id)
        # A later page needs every row before its cursor, and a replica may lag behind.
        source = self.database if case_filter.last else self.read_database
        cases = await case_lists.list_for_merchant(source, case_filter, limit + 1)
        return page_response(cases, limit, format_case, lambda last: write_id_cursor(last.id))
