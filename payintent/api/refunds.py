"""The merchant's refunds: create one, read one, list those of a payment, or of all of them."""

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from payintent.api import schemas
from payintent.api.context import AppContext
from payintent.api.etag import REPLAYED, json_response
from payintent.api.merchant_access import merchant_route
from payintent.api.pagination import (
    page_response,
    read_id_cursor,
    read_limit,
    read_time_cursor,
    write_id_cursor,
    write_time_cursor,
)
from payintent.api.request_body import read_idempotency_key, read_json
from payintent.api.times import read_time
from payintent.domain import ids
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.payment import Payment
from payintent.domain.refund import RefundStatus
from payintent.payments.create_refund import CreateRefundRequest
from payintent.payments.lookup import (
    get_merchant_refund,
    list_payment_refunds,
)
from payintent.payments.serialization import refund_fields
from payintent.storage import merchant_refunds
from payintent.storage.api_keys import AuthenticatedMerchant
from payintent.storage.merchant_refunds import MerchantRefundFilter


@merchant_route
async def post_refund(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    """`POST /payments/{payment_id}/refunds`; without a body, all that is left is refunded."""
    key = read_idempotency_key(request.headers)
    if key is None:
        raise RefusedError(ErrorCode.BAD_REQUEST, "Idempotency-Key is required")
    service = app.service
    body = await read_json(
        request, schemas.REFUND, service.settings.body_bytes_max, schemas.CreateRefundBody()
    )
    schemas.check_refund(body)
    amount = schemas.read_refund_amount(body.amount)
    payment = await _payment(request, app, merchant)
    created = await service.refund_creator.create(
        CreateRefundRequest(
            merchant_id=merchant.merchant_id,
            payment_id=payment.id,
            key=key,
            api_key_id=merchant.public_id,
            amount=amount,
            reason=body.reason,
            destination=body.destination,
        )
    )
    return json_response(refund_fields(created.refund), 201, REPLAYED if created.replayed else None)


@merchant_route
async def list_refunds(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    """`GET /payments/{payment_id}/refunds?limit=&cursor=`: newest first."""
    limit = read_limit(request.query_params.get("limit"))
    before = read_id_cursor(request.query_params.get("cursor"))
    payment = await _payment(request, app, merchant)
    found, more = await list_payment_refunds(app.service.database, payment.id, before, limit)
    answer: dict[str, object] = {"data": [refund_fields(refund) for refund in found]}
    if more is not None:
        answer["next_cursor"] = write_id_cursor(more)
    return json_response(answer)


@merchant_route
async def list_updated_refunds(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    """`GET /refunds?status=&updated_since=&limit=&cursor=`: the last changed first."""
    limit = read_limit(request.query_params.get("limit"))
    wanted = read_refund_filter(request.query_params, merchant.merchant_id)
    found = await merchant_refunds.page_by_update(app.service.database, wanted, limit + 1)
    return page_response(
        found, limit, refund_fields, lambda last: write_time_cursor(last.updated_at, last.id)
    )


def read_refund_filter(query: Mapping[str, str], merchant_id: int) -> MerchantRefundFilter:
    """Read which of a merchant's refunds to list (`BAD_REQUEST`)."""
    status, since, cursor = query.get("status"), query.get("updated_since"), query.get("cursor")
    if status is not None and status not in set(RefundStatus):
        raise RefusedError(
            ErrorCode.BAD_REQUEST, f"status must be one of {', '.join(RefundStatus)}"
        )
    return MerchantRefundFilter(
        merchant_id=merchant_id,
        status=status,
        updated_since=None if since is None else read_time("updated_since", since),
        before=None if cursor is None else read_time_cursor(cursor),
    )


@merchant_route
async def get_refund(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    refund_id = ids.parse_id(ids.REFUND, request.path_params["refund_id"])
    refund = await get_merchant_refund(app.service.database, merchant.merchant_id, refund_id)
    return json_response(refund_fields(refund))


async def _payment(request: Request, app: AppContext, merchant: AuthenticatedMerchant) -> Payment:
    payment_id = ids.parse_id(ids.PAYMENT, request.path_params["payment_id"])
    service = app.service
    snapshot = await service.payment_lookup.get_merchant_payment(merchant.merchant_id, payment_id)
    return snapshot.payment
