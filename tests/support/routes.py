"""The complete route tables of an application with an open service."""

from unittest.mock import Mock

from starlette.routing import Route

from payintent import app as routes
from payintent.http.middleware import metrics_route
from payintent.merchants.access import MerchantApi
from payintent.portal.routes import PORTAL_ROUTES

_ROUTE_CONTEXT = Mock(merchant_api=MerchantApi(Mock(), Mock()))
#: The routes of the public port, without the merchant portal.
ROUTES: list[Route] = [
    *routes.make_api_routes(_ROUTE_CONTEXT),
    *(route for route in routes.PUBLIC_ROUTES if route not in PORTAL_ROUTES),
]
OPERATOR_ROUTES: list[Route] = [
    metrics_route(bytes),
    *routes.OPERATOR_ROUTES,
    *routes.make_operator_routes(_ROUTE_CONTEXT),
]
