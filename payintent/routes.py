"""All routes of the service.

The routes of the API and of operations are built when the service is open. The routes of pages
exist before, and respond with 503 until their contexts are set.
"""

from dataclasses import dataclass
from uuid import UUID

from starlette.routing import Route

from payintent.api import checkout, checkout_events
from payintent.api.authentication_failures import Attempts
from payintent.api.callbacks import CallbackRoutes
from payintent.api.cases import CaseRoutes
from payintent.api.catalog import CatalogRoutes
from payintent.api.concurrent_creates import ConcurrentCreates
from payintent.api.disputes import DisputeRoutes
from payintent.api.docs import pages
from payintent.api.event_feed import EventFeedRoutes
from payintent.api.health import LIVENESS_ROUTE, HealthRoutes
from payintent.api.merchant_access import MerchantApi
from payintent.api.onchain import OnchainRoutes
from payintent.api.operator import OperationRoutes
from payintent.api.operator_access import OperatorApi
from payintent.api.operator_payment import PaymentHistoryRoutes
from payintent.api.operator_webhooks import OperatorWebhookRoutes
from payintent.api.payments import PaymentRoutes
from payintent.api.public import PublicRoutes
from payintent.api.rate_limits import AddressRateLimiter
from payintent.api.readiness import Readiness
from payintent.api.refunds import RefundRoutes
from payintent.api.statements import StatementRoutes
from payintent.api.test_clock import TestClockRoutes
from payintent.api.test_payments import TestPaymentRoutes
from payintent.api.viewer import ViewerReader
from payintent.checkout import codes, page, pictures, sdk_files, static_files, test_card_page
from payintent.console.routes import CONSOLE_ROUTES
from payintent.operations.approvals import proposal_view
from payintent.payments.change_feed import ChangeFeed
from payintent.portal.routes import PORTAL_ROUTES
from payintent.service import Service

CHECKOUT_ROUTES: list[Route] = [
    Route("/v1/checkout/{checkout_id}", checkout.get_checkout, methods=["GET"]),
    Route("/v1/checkout/{checkout_id}/quotes", checkout.get_quotes, methods=["GET"]),
    Route("/v1/checkout/{checkout_id}", checkout.patch_checkout, methods=["PATCH"]),
    Route("/v1/checkout/{checkout_id}/quotes", checkout.post_quotes, methods=["POST"]),
    Route("/v1/checkout/{checkout_id}/cancel", checkout.post_cancel, methods=["POST"]),
    Route("/v1/checkout/{checkout_id}/events", checkout_events.get_events, methods=["GET"]),
    Route("/c/{checkout_id}", page.get_page, methods=["GET"]),
    Route("/c/{checkout_id}/select", page.post_select, methods=["POST"]),
    Route("/c/{checkout_id}/cancel", page.post_cancel_form, methods=["POST"]),
    Route("/c/{checkout_id}/return", page.get_return, methods=["GET", "POST"]),
    Route("/c/{checkout_id}/receipt", page.get_receipt, methods=["GET"]),
    Route("/c/{checkout_id}/qr.svg", codes.get_qr, methods=["GET"]),
    Route("/c/{checkout_id}/wallet.svg", codes.get_wallet_qr, methods=["GET"]),
    Route("/c/test/card/{session_id}", test_card_page.get_card_page, methods=["GET"]),
    Route("/c/test/card/{session_id}", test_card_page.post_card_page, methods=["POST"]),
    Route("/c/wallet/open/{code}", codes.get_open, methods=["GET"]),
    Route("/c/static/pictures/{name}.webp", pictures.get_picture, methods=["GET"]),
    Route("/c/static/flags/{name}", static_files.get_flag, methods=["GET"]),
    Route("/c/static/{mark}/{name}", static_files.get_static_file, methods=["GET"]),
    Route("/sdk/{name}", sdk_files.get_sdk_file, methods=["GET"]),
]
#: Routes of the public port that exist while the service starts.
PUBLIC_ROUTES: list[Route] = [
    *CHECKOUT_ROUTES,
    *PORTAL_ROUTES,
    LIVENESS_ROUTE,
    Route("/openapi.yaml", pages.openapi_yaml, methods=["GET"]),
    Route("/docs", pages.get_docs_index, methods=["GET"]),
    Route("/docs/{name}", pages.get_docs_page, methods=["GET"]),
]
#: Routes of the operator's own port, which only operators must reach, while the service starts.
OPERATOR_ROUTES: list[Route] = [LIVENESS_ROUTE, *CONSOLE_ROUTES]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteParts:
    """The service and the per-process parts from which the routes are built."""

    service: Service
    merchant_api: MerchantApi
    attempts: Attempts
    viewers: ViewerReader
    addresses: AddressRateLimiter
    concurrent_creates: ConcurrentCreates
    payment_changes: ChangeFeed[UUID]
    event_changes: ChangeFeed[int]  # of merchants' events
    readiness: Readiness


def api_routes(parts: RouteParts) -> list[Route]:
    """Return the public routes that need the service, the most frequent ones first."""
    service, api = parts.service, parts.merchant_api
    settings, database = service.settings, service.database
    body_max = settings.body_bytes_max
    lookup = service.payment_lookup
    return [
        *PaymentRoutes(
            api,
            settings,
            database,
            service.reading,
            lookup,
            service.fraud_screening,
            parts.concurrent_creates,
        ).routes(),
        *CallbackRoutes(
            service.accounts, service.callback_receiver, settings.callback_bytes_max
        ).routes(),
        *CatalogRoutes(api, service.catalogs, parts.viewers, settings.edge_country_header).routes(),
        *RefundRoutes(api, database, lookup, service.refund_creator, body_max).routes(),
        *EventFeedRoutes(api, database, parts.event_changes, service.operation_context).routes(),
        *CaseRoutes(api, database, service.reading).routes(),
        *StatementRoutes(api, database).routes(),
        *DisputeRoutes(api, database).routes(),
        *TestClockRoutes(api, database, body_max).routes(),
        *TestPaymentRoutes(
            api, lookup, service.buyer_simulator, settings.checkout_base, body_max
        ).routes(),
        *PublicRoutes(service.policies, settings.api_base, body_max).routes(),
        *OnchainRoutes(
            database, service.wallet_handoff, parts.viewers, parts.addresses, body_max
        ).routes(),
        *HealthRoutes(parts.readiness).routes(),
    ]


def operator_routes(parts: RouteParts) -> list[Route]:
    """Return the operators' routes that need the service."""
    context = parts.service.operation_context
    api = OperatorApi(context.database, context.encryption, parts.attempts)
    return [
        *HealthRoutes(parts.readiness).routes(),
        *PaymentHistoryRoutes(api, context).routes(),
        *OperatorWebhookRoutes(api, context).routes(),
        *OperationRoutes(api, context, proposal_view).routes(),
    ]
