"""The complete route tables, as an application has them once its service is open."""

from unittest.mock import Mock

from starlette.routing import Route

from payintent import app as routes
from payintent.http.middleware import metrics_route
from payintent.merchants.access import MerchantApi
from payintent.portal.routes import PORTAL_ROUTES

_PARTS = Mock(merchant_api=MerchantApi(Mock(), Mock()))
#: Of the public port, without the merchant portal.
ROUTES: list[Route] = [
    *routes.api_routes(_PARTS),
    *(route for route in routes.PUBLIC_ROUTES if route not in PORTAL_ROUTES),
]
OPERATOR_ROUTES: list[Route] = [
    metrics_route(bytes),
    *routes.OPERATOR_ROUTES,
    *routes.operator_routes(_PARTS),
]
