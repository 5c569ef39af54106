"""`GET /disputes`: what buyers contest at their banks, newest first; read only."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.context import AppContext
from payintent.api.merchant_access import merchant_route
from payintent.api.pagination import page_response, read_id_cursor, read_limit, write_id_cursor
from payintent.domain import ids
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.money import format_smallest_units
from payintent.json_format import format_timestamp
from payintent.storage import case_list
from payintent.storage.api_keys import AuthenticatedMerchant
from payintent.storage.case_list import DisputeFilter, DisputeRecord

_RUNNING, _ALL = "RUNNING", "ALL"


@merchant_route
async def list_disputes(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    """`GET /disputes?status=&limit=&cursor=`: of all payments of the merchant."""
    limit = read_limit(request.query_params.get("limit"))
    wanted = DisputeFilter(
        merchant_id=merchant.merchant_id,
        running=_is_running(request.query_params),
        last=read_id_cursor(request.query_params.get("cursor")),
    )
    found = await case_list.list_disputes(app.service.database, wanted, limit + 1)
    return page_response(
        found, limit, dispute_fields, lambda last: write_id_cursor(UUID(str(last.id)))
    )


def dispute_fields(dispute: DisputeRecord) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "case_id": ids.format_id(ids.CASE, dispute.case_id),
        "payment_id": dispute.payment_id and ids.format_id(ids.PAYMENT, dispute.payment_id),
        "state": dispute.state,
        "funds": dispute.funds,
        "currency": dispute.currency,
        "amount": format_smallest_units(
            int(dispute.amount_minor), dispute.currency, None, on_chain=False
        ),
        "reason": dispute.reason or None,
        "respond_by": dispute.respond_by and format_timestamp(dispute.respond_by),
        "opened_at": format_timestamp(dispute.created_at),
        "updated_at": format_timestamp(dispute.updated_at),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _is_running(query: Mapping[str, str]) -> bool:
    status = query.get("status", _ALL)
    if status not in {_RUNNING, _ALL}:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"status must be {_RUNNING} or {_ALL}")
    return status == _RUNNING
