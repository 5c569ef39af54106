"""Merchant API routes to create, read, list and cancel payments."""

from dataclasses import dataclass
from functools import partial
from typing import cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.core import ids
from payintent.core.access import RateLimitClass
from payintent.db.database import Database
from payintent.db.replica import ReadDatabase
from payintent.fraud.model import FraudDeniedError
from payintent.http.bodies import read_idempotency_key
from payintent.http.pagination import write_time_cursor
from payintent.http.responses import REPLAYED_HEADERS, json_response
from payintent.merchants.access import MerchantApi
from payintent.merchants.access_store import AuthenticatedMerchant
from payintent.merchants.limits import RateLimitExceededError
from payintent.payments.cancel import cancel_by_merchant
from payintent.payments.create import (
    ConcurrentCreateRequests,
    CreatedPayment,
    InvalidCreateRequest,
    replay_create,
    replay_invalid_request,
)
from payintent.payments.lookup import PaymentLookup, list_merchant_payments
from payintent.payments.schemas import read_create_request, read_payment_filter
from payintent.payments.screen import FraudScreening
from payintent.payments.serialization import (
    make_denial_fields,
    make_merchant_payment_fields,
    make_payment_fields,
)
from payintent.payments.store import PaymentSnapshot
from payintent.runtime import tracing
from payintent.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class PaymentRoutes:
    api: MerchantApi
    settings: Settings
    database: Database
    read_database: ReadDatabase
    lookup: PaymentLookup
    screening: FraudScreening
    concurrent_create_requests: ConcurrentCreateRequests

    def routes(self) -> list[Route]:
        return [
            Route("/v1/payments", self.post_payment, methods=["POST"]),
            self.api.route("GET", "/v1/payments/{payment_id}", self.get_payment),
            self.api.route("GET", "/v1/payments", self.list_payments),
            self.api.route("POST", "/v1/payments/{payment_id}/cancel", self.cancel_payment),
        ]

    async def post_payment(self, request: Request) -> Response:
        """Create a payment, or replay the result stored under its idempotency key.

        New payments count against the create limit and replays against the read limit. A merchant
        above the create limit can still replay results, up to a separate limit.
        """
        merchant = await self.api.authenticator.authenticate(request)
        try:
            await self.api.apply_limit(request, merchant, RateLimitClass.CREATE)
        except RateLimitExceededError as limit_error:
            result = await self._replay_above_limit(request, merchant, limit_error)
        else:
            create_request = await read_create_request(request, merchant, self.settings)
            try:
                if isinstance(create_request, InvalidCreateRequest):
                    result = await replay_invalid_request(self.database, create_request)
                else:
                    result = await self.concurrent_create_requests.run_once(
                        create_request, partial(self.screening.create_payment, create_request)
                    )
            except FraudDeniedError as denial_error:
                if denial_error.replayed:
                    await self._count_as_read(request, merchant)
                raise
            if result.replayed:
                await self._count_as_read(request, merchant)
        payment = result.payment
        tracing.follow_payment(payment.id, is_new=not result.replayed)
        fields = make_payment_fields(payment, None)
        if base := self.settings.checkout_base:
            query = f"?country={result.country}" if result.country else ""
            fields["checkout_url"] = f"{base}/{payment.checkout_id}{query}"
        return json_response(fields, 201, REPLAYED_HEADERS if result.replayed else None)

    async def get_payment(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        snapshot = await self._get_payment(request, merchant)
        return json_response(make_merchant_payment_fields(snapshot, self.settings.checkout_base))

    async def list_payments(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        """List payments, newest first. `next_cursor` is present if there are more payments."""
        payment_filter = read_payment_filter(request.query_params, merchant.merchant_id)
        snapshots, next_position = await list_merchant_payments(
            self.database, self.read_database, payment_filter
        )
        base = self.settings.checkout_base
        page: dict[str, object] = {
            "data": [make_merchant_payment_fields(snapshot, base) for snapshot in snapshots]
        }
        if next_position is not None:
            page["next_cursor"] = write_time_cursor(*next_position)
        return json_response(page)

    async def cancel_payment(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        key = read_idempotency_key(request.headers)
        snapshot = await self._get_payment(request, merchant)
        async with self.database.transaction() as tx:
            is_first = await cancel_by_merchant(tx, snapshot.payment, key)
        return json_response(
            {"status": "cancelled"}, headers=None if is_first else REPLAYED_HEADERS
        )

    async def _get_payment(
        self, request: Request, merchant: AuthenticatedMerchant
    ) -> PaymentSnapshot:
        payment_id = ids.parse_id(ids.PAYMENT, request.path_params["payment_id"])
        return await self.lookup.get_merchant_payment(merchant.merchant_id, payment_id)

    async def _count_as_read(self, request: Request, merchant: AuthenticatedMerchant) -> None:
        self.api.limiter.return_token(merchant, RateLimitClass.CREATE)
        await self.api.apply_limit(request, merchant, RateLimitClass.READ)

    async def _replay_above_limit(
        self, request: Request, merchant: AuthenticatedMerchant, limit_error: RateLimitExceededError
    ) -> CreatedPayment:
        try:
            await self.api.limiter.take_lookup_token(merchant)
        except RateLimitExceededError:
            raise limit_error from None
        create_request = await read_create_request(request, merchant, self.settings)
        attempt = (
            create_request.attempt
            if isinstance(create_request, InvalidCreateRequest)
            else create_request
        )
        result = await replay_create(self.database, attempt)
        if result is None:
            raise limit_error
        return result


async def respond_to_denial(_: Request, error: Exception) -> Response:
    """Respond to a fraud denial with status 200 (spec section 7.4)."""
    error = cast("FraudDeniedError", error)
    return json_response(
        make_denial_fields(error.denial),
        headers=REPLAYED_HEADERS if error.replayed else None,
    )
