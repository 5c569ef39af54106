"""`GET /v1/catalog`: which currencies a merchant's buyers can pay with."""

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.context import AppContext
from payintent.api.etag import etag_response
from payintent.api.merchant_access import merchant_route
from payintent.storage.api_keys import AuthenticatedMerchant


@merchant_route
async def get_catalog(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    """`GET /catalog`: the currencies that the merchant can be paid with, by country."""
    service = app.service
    viewer = app.viewers.viewer_country(request)
    catalog = await service.catalogs.get(merchant.merchant_id, viewer)
    headers = {
        "Cache-Control": "private, max-age=300",
        "Vary": f"Authorization, {service.settings.edge_country_header}",
    }
    return etag_response(request, catalog.body, catalog.etag, headers)
