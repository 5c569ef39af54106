"""Merchant API routes to create, return, list and deactivate payment links."""

from dataclasses import dataclass
from functools import partial
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.core import ids
from payintent.core.errors import BadRequestError
from payintent.db.database import Database
from payintent.http.bodies import read_idempotency_key, read_json
from payintent.http.pagination import read_id_cursor, read_limit, write_id_cursor
from payintent.http.responses import REPLAYED_HEADERS, json_response, page_response
from payintent.merchants.access import MerchantApi
from payintent.merchants.access_store import AuthenticatedMerchant
from payintent.payment_links import store as link_store
from payintent.payment_links.create import (
    create_link,
    deactivate_link,
    get_merchant_link,
    make_link_fields,
)
from payintent.payment_links.schemas import LINK_DECODER
from payintent.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class PaymentLinkRoutes:
    api: MerchantApi
    database: Database
    settings: Settings

    def routes(self) -> list[Route]:
        route = self.api.route
        return [
            route("POST", "/v1/payment-links", self.post_link),
            route("GET", "/v1/payment-links", self.list_links),
            route("GET", "/v1/payment-links/{link_id}", self.get_link),
            route("POST", "/v1/payment-links/{link_id}/deactivate", self.deactivate_link),
        ]

    async def post_link(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        key = read_idempotency_key(request.headers)
        if key is None:
            raise BadRequestError("Idempotency-Key is required")
        body = await read_json(request, LINK_DECODER, self.settings.body_bytes_max)
        created_link = await create_link(
            self.database, self.settings, merchant, body, key, _name_key(merchant)
        )
        fields = make_link_fields(created_link.stored, self.settings.checkout_base)
        return json_response(fields, 201, REPLAYED_HEADERS if created_link.replayed else None)

    async def get_link(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        stored = await get_merchant_link(self.database, merchant.merchant_id, _read_id(request))
        return json_response(make_link_fields(stored, self.settings.checkout_base))

    async def list_links(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        """`GET /payment-links?limit=&cursor=`: newest first."""
        limit = read_limit(request.query_params.get("limit"))
        before = read_id_cursor(request.query_params.get("cursor"))
        links = await link_store.list_for_merchant(
            self.database, merchant.merchant_id, before, limit + 1
        )
        to_fields = partial(make_link_fields, checkout_base=self.settings.checkout_base)
        return page_response(links, limit, to_fields, lambda last: write_id_cursor(last.link.id))

    async def deactivate_link(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        stored = await deactivate_link(
            self.database, merchant.merchant_id, _read_id(request), _name_key(merchant)
        )
        return json_response(make_link_fields(stored, self.settings.checkout_base))


def _read_id(request: Request) -> UUID | None:
    return ids.parse_id(ids.PAYMENT_LINK, request.path_params["link_id"])


def _name_key(merchant: AuthenticatedMerchant) -> str:
    return f"merchant:{merchant.merchant_id}:{merchant.public_id}"
