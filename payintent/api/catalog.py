"""`GET /v1/catalog`: the currencies that a merchant's buyers can pay with."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.api.etag import etag_response
from payintent.api.merchant_access import MerchantApi
from payintent.api.viewer import ViewerReader
from payintent.payments.catalog import Catalogs
from payintent.storage.api_keys import AuthenticatedMerchant


@dataclass(frozen=True, slots=True)
class CatalogRoutes:
    api: MerchantApi
    catalogs: Catalogs
    viewers: ViewerReader
    country_header: str  # of the edge network: responses vary by it

    def routes(self) -> list[Route]:
        return [self.api.route("GET", "/v1/catalog", self.get_catalog)]

    async def get_catalog(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        viewer = self.viewers.viewer_country(request)
        catalog = await self.catalogs.get(merchant.merchant_id, viewer)
        headers = {
            "Cache-Control": "private, max-age=300",
            "Vary": f"Authorization, {self.country_header}",
        }
        return etag_response(request, catalog.body, catalog.etag, headers)
