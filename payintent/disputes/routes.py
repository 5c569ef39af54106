"""Merchant API route that lists disputes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.core.errors import BadRequestError
from payintent.db.database import Database
from payintent.disputes import store as dispute_store
from payintent.disputes.store import DisputeDetails, DisputeFilter
from payintent.http.pagination import read_id_cursor, read_limit, write_id_cursor
from payintent.http.responses import page_response
from payintent.merchants.access import MerchantApi
from payintent.merchants.access_store import AuthenticatedMerchant
from payintent.runtime.json_format import format_timestamp

_RUNNING, _ALL = "RUNNING", "ALL"


@dataclass(frozen=True, slots=True)
class DisputeRoutes:
    api: MerchantApi
    database: Database

    def routes(self) -> list[Route]:
        return [self.api.route("GET", "/v1/disputes", self.list_disputes)]

    async def list_disputes(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        limit = read_limit(request.query_params.get("limit"))
        dispute_filter = DisputeFilter(
            merchant_id=merchant.merchant_id,
            only_running=_parse_running_filter(request.query_params),
            last=read_id_cursor(request.query_params.get("cursor")),
        )
        disputes = await dispute_store.list_disputes(self.database, dispute_filter, limit + 1)
        return page_response(disputes, limit, format_dispute, lambda last: write_id_cursor(last.id))


def format_dispute(dispute: DisputeDetails) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "case_id": dispute.case_id,
        "payment_id": dispute.payment_id,
        "state": dispute.state,
        "funds": dispute.funds,
        "currency": dispute.currency,
        "amount": dispute.amount,
        "reason": dispute.reason or None,
        "respond_by": dispute.respond_by and format_timestamp(dispute.respond_by),
        "opened_at": format_timestamp(dispute.created_at),
        "updated_at": format_timestamp(dispute.updated_at),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _parse_running_filter(query: Mapping[str, str]) -> bool:
    status = query.get("status", _ALL)
    if status not in {_RUNNING, _ALL}:
        raise BadRequestError(f"status must be {_RUNNING} or {_ALL}")
    return status == _RUNNING
