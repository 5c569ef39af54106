"""Merchant API routes that create, read and list refunds."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.core import ids
from payintent.core.errors import BadRequestError
from payintent.db.database import Database
from payintent.http.bodies import read_idempotency_key, read_json
from payintent.http.pagination import (
    read_id_cursor,
    read_limit,
    read_time,
    read_time_cursor,
    write_id_cursor,
    write_time_cursor,
)
from payintent.http.responses import REPLAYED_HEADERS, json_response, page_response
from payintent.merchants.access import MerchantApi
from payintent.merchants.access_store import AuthenticatedMerchant
from payintent.payments import schemas
from payintent.payments.lookup import PaymentLookup
from payintent.payments.model import Payment
from payintent.refunds import list_store as refund_lists
from payintent.refunds.create import CreateRefundRequest, RefundCreator
from payintent.refunds.list_store import MerchantRefundFilter
from payintent.refunds.lookup import get_merchant_refund, make_refund_fields
from payintent.refunds.model import RefundStatus


@dataclass(frozen=True, slots=True)
class RefundRoutes:
    api: MerchantApi
    database: Database
    payment_lookup: PaymentLookup
    refund_creator: RefundCreator
    body_bytes_max: int

    def routes(self) -> list[Route]:
        route = self.api.route
        return [
            route("POST", "/v1/payments/{payment_id}/refunds", self.create_refund),
            route("GET", "/v1/payments/{payment_id}/refunds", self.list_payment_refunds),
            route("GET", "/v1/refunds/{refund_id}", self.get_refund),
            route("GET", "/v1/refunds", self.list_refunds),
        ]

    async def create_refund(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        """`POST /payments/{payment_id}/refunds`: an empty body refunds the full remainder."""
        key = read_idempotency_key(request.headers)
        if key is None:
            raise BadRequestError("Idempotency-Key is required")
        body = await read_json(
            request, schemas.REFUND_DECODER, self.body_bytes_max, schemas.CreateRefundBody()
        )
        schemas.check_refund_texts(body)
        amount = schemas.read_refund_amount(body.amount)
        payment = await self._get_payment(request, merchant)
        created_refund = await self.refund_creator.create(
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
        fields = make_refund_fields(created_refund.refund)
        return json_response(fields, 201, REPLAYED_HEADERS if created_refund.replayed else None)

    async def list_payment_refunds(
        self, request: Request, merchant: AuthenticatedMerchant
    ) -> Response:
        """`GET /payments/{payment_id}/refunds?limit=&cursor=`: newest first."""
        limit = read_limit(request.query_params.get("limit"))
        before = read_id_cursor(request.query_params.get("cursor"))
        payment = await self._get_payment(request, merchant)
        refunds = await refund_lists.list_for_payment(self.database, payment.id, before, limit + 1)
        return page_response(
            refunds,
            limit,
            make_refund_fields,
            lambda last_refund: write_id_cursor(last_refund.id),
        )

    async def list_refunds(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        """`GET /refunds?status=&updated_since=&limit=&cursor=`: most recently updated first."""
        limit = read_limit(request.query_params.get("limit"))
        refund_filter = read_refund_filter(request.query_params, merchant.merchant_id)
        refunds = await refund_lists.list_by_update(self.database, refund_filter, limit + 1)
        return page_response(
            refunds,
            limit,
            make_refund_fields,
            lambda last_refund: write_time_cursor(last_refund.updated_at, last_refund.id),
        )

    async def get_refund(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        refund_id = ids.parse_id(ids.REFUND, request.path_params["refund_id"])
        refund = await get_merchant_refund(self.database, merchant.merchant_id, refund_id)
        return json_response(make_refund_fields(refund))

    async def _get_payment(self, request: Request, merchant: AuthenticatedMerchant) -> Payment:
        payment_id = ids.parse_id(ids.PAYMENT, request.path_params["payment_id"])
        snapshot = await self.payment_lookup.get_merchant_payment(merchant.merchant_id, payment_id)
        return snapshot.payment


def read_refund_filter(query: Mapping[str, str], merchant_id: int) -> MerchantRefundFilter:
    """Parse the query parameters of a refund list. Raises `BAD_REQUEST` for invalid values."""
    status, since, cursor = query.get("status"), query.get("updated_since"), query.get("cursor")
    if status is not None and status not in set(RefundStatus):
        raise BadRequestError(f"status must be one of {', '.join(RefundStatus)}")
    return MerchantRefundFilter(
        merchant_id=merchant_id,
        status=status,
        updated_since=None if since is None else read_time("updated_since", since),
        before=None if cursor is None else read_time_cursor(cursor),
    )
