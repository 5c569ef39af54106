"""The public and operator applications of an API process, and all of their routes."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from uuid import UUID

# aiohttp, keccak and screen are imported before processes are forked, so that the first gateway
# call, on-chain checkout and payment do not wait for these imports.
import aiohttp  # noqa: F401  # pyright: ignore[reportUnusedImport]
import Crypto.Hash.keccak  # noqa: F401  # pyright: ignore[reportUnusedImport]
from prometheus_client import generate_latest
from starlette.routing import Route

import payintent.payments.screen  # noqa: F401  # pyright: ignore[reportUnusedImport]
from payintent.accounting.routes import StatementRoutes
from payintent.approvals.operations import make_proposal_view
from payintent.callbacks.routes import CallbackRoutes
from payintent.cases.routes import CaseRoutes
from payintent.chains.compare_endpoints import EndpointComparison
from payintent.checkout import (
    codes,
    events,
    link_page,
    page,
    refund_address_page,
    static_files,
    test_mode_card_page,
    test_mode_deposits,
)
from payintent.checkout import routes as checkout
from payintent.checkout.context import CheckoutContext
from payintent.checkout.events import CHECKOUT_STREAMS_MAX
from payintent.console.context import ConsoleContext
from payintent.console.oidc.provider import IdentityProvider
from payintent.console.queue_counts import QueueCounts
from payintent.console.routes import CONSOLE_ROUTES
from payintent.db.notify import ChangeFeed
from payintent.disputes.routes import DisputeRoutes
from payintent.fraud.model import FraudDeniedError
from payintent.gateway_accounts.calls import GatewayCallLog
from payintent.http.address_limits import AuthenticationAttempts
from payintent.http.application import RoutedApplication
from payintent.http.docs import pages
from payintent.http.docs.packages import PackageRoutes
from payintent.http.errors import HANDLERS, RefusalLog, on_bug
from payintent.http.exports import ExportSlots
from payintent.http.health import LIVENESS_ROUTE, HealthRoutes, Readiness
from payintent.http.middleware import CommonHeaders, RequestTimes, metrics_route
from payintent.http.viewer import ViewerReader
from payintent.merchants.access import Authenticator, MerchantApi, MerchantDirectory
from payintent.merchants.call_log import CallLog, CallLogWriter, KeyUses
from payintent.merchants.limits import AddressRateLimiter, MerchantRateLimiter
from payintent.onchain.routes import OnchainRoutes
from payintent.operators.access import OperatorApi
from payintent.operators.routes import OperationRoutes
from payintent.overview.cache import OverviewCache
from payintent.payment_history.routes import PaymentHistoryRoutes
from payintent.payment_links.open_payment import LinkPayments
from payintent.payment_links.routes import PaymentLinkRoutes
from payintent.payments import store as payment_store
from payintent.payments.create import ConcurrentCreateRequests
from payintent.payments.method_usage import MethodUsage
from payintent.payments.routes import PaymentRoutes, respond_to_denial
from payintent.portal.context import PortalContext
from payintent.portal.routes import PORTAL_ROUTES
from payintent.quotes.routes import CatalogRoutes, PublicRoutes
from payintent.refunds.routes import RefundRoutes
from payintent.runtime import tracing
from payintent.runtime.settings import Settings
from payintent.runtime.tracing import start_tracing
from payintent.runtime.waiting import finish_unless_stopped
from payintent.service import Service, open_api_service
from payintent.test_mode.routes import TestModeRoutes
from payintent.webhooks import feed_store
from payintent.webhooks.routes import FEED_WAITS_MAX, EventFeedRoutes, OperatorWebhookRoutes

CHECKOUT_ROUTES: list[Route] = [
    Route("/v1/checkout/{checkout_id}", checkout.get_checkout, methods=["GET"]),
    Route("/v1/checkout/{checkout_id}/quotes", checkout.get_quotes, methods=["GET"]),
    Route("/v1/checkout/{checkout_id}", checkout.patch_checkout, methods=["PATCH"]),
    Route("/v1/checkout/{checkout_id}/quotes", checkout.post_quotes, methods=["POST"]),
    Route("/v1/checkout/{checkout_id}/cancel", checkout.post_cancel, methods=["POST"]),
    Route("/v1/checkout/{checkout_id}/events", events.get_events, methods=["GET"]),
    Route("/c/{checkout_id}", page.get_page, methods=["GET"]),
    # The browser shows the URL of a rejected form. Buyers share it or open it in another browser.
    Route("/c/{checkout_id}/select", page.get_page, methods=["GET"]),
    Route("/c/{checkout_id}/select", page.post_select, methods=["POST"]),
    Route("/c/{checkout_id}/cancel", page.get_page, methods=["GET"]),
    Route("/c/{checkout_id}/cancel", page.post_cancel_form, methods=["POST"]),
    Route("/c/{checkout_id}/return", page.get_return, methods=["GET", "POST"]),
    Route("/c/{checkout_id}/receipt", page.get_receipt, methods=["GET"]),
    Route("/c/{checkout_id}/qr.svg", codes.get_page_qr, methods=["GET"]),
    Route("/c/{checkout_id}/wallet.svg", codes.get_wallet_qr, methods=["GET"]),
    Route("/c/{checkout_id}/address.svg", codes.get_address_qr, methods=["GET"]),
    Route("/c/test/card/{session_id}", test_mode_card_page.get_card_page, methods=["GET"]),
    Route("/c/test/card/{session_id}", test_mode_card_page.post_card_page, methods=["POST"]),
    Route("/c/{checkout_id}/test-transfer", test_mode_deposits.post_transfer, methods=["POST"]),
    Route("/c/refund/{code}", refund_address_page.get_refund_address, methods=["GET"]),
    Route("/c/refund/{code}", refund_address_page.post_refund_address, methods=["POST"]),
    Route("/c/link/{token}", link_page.get_link_page, methods=["GET"]),
    Route("/c/link/{token}", link_page.post_link_page, methods=["POST"]),
    Route("/c/link/{token}/qr.svg", link_page.get_link_qr, methods=["GET"]),
    Route("/c/wallet/open/{code}", codes.get_wallet_handoff, methods=["GET"]),
    Route("/c/static/pictures/{name}.webp", static_files.get_picture, methods=["GET"]),
    Route("/c/static/flags/{name}", static_files.get_flag, methods=["GET"]),
    Route("/c/static/{mark}/{name}", static_files.get_static_file, methods=["GET"]),
    Route("/sdk/{name}", static_files.get_sdk_file, methods=["GET"]),
]
#: Routes of the public port that are served while the service is starting.
PUBLIC_ROUTES: list[Route] = [
    *CHECKOUT_ROUTES,
    *PORTAL_ROUTES,
    LIVENESS_ROUTE,
    Route("/openapi.yaml", pages.get_openapi_yaml, methods=["GET"]),
    Route("/docs", pages.get_docs_index, methods=["GET"]),
    Route("/docs/{name}", pages.get_docs_page, methods=["GET"]),
]
#: Routes of the operator port that are served while the service is starting. This port must be
#: reachable only by operators.
OPERATOR_ROUTES: list[Route] = [LIVENESS_ROUTE, *CONSOLE_ROUTES]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteContext:
    """The service and other objects that a process's routes depend on."""

    service: Service
    merchant_api: MerchantApi
    attempts: AuthenticationAttempts
    viewers: ViewerReader
    address_limiter: AddressRateLimiter
    concurrent_create_requests: ConcurrentCreateRequests
    payment_changes: ChangeFeed[UUID]
    event_changes: ChangeFeed[int]  # notifies subscribers of new events, by merchant id
    readiness: Readiness


def make_api_routes(route_context: RouteContext) -> list[Route]:
    """Return the public routes that need the service."""
    service, api = route_context.service, route_context.merchant_api
    settings, database = service.settings, service.database
    body_max = settings.body_bytes_max
    lookup = service.payment_lookup
    return [
        *PaymentRoutes(
            api,
            settings,
            database,
            service.read_database,
            lookup,
            service.fraud_screening,
            route_context.concurrent_create_requests,
        ).routes(),
        *CallbackRoutes(
            service.accounts, service.callback_receiver, settings.callback_bytes_max
        ).routes(),
        *CatalogRoutes(
            api, service.catalogs, route_context.viewers, settings.edge_country_header
        ).routes(),
        *RefundRoutes(api, database, lookup, service.refund_creator, body_max).routes(),
        *EventFeedRoutes(
            api, database, route_context.event_changes, service.operation_context
        ).routes(),
        *PaymentLinkRoutes(api, database, settings).routes(),
        *CaseRoutes(api, database, service.read_database).routes(),
        *StatementRoutes(api, database).routes(),
        *DisputeRoutes(api, database).routes(),
        *TestModeRoutes(api, database, lookup, service.buyer_simulator, settings).routes(),
        *PublicRoutes(service.policies, settings.api_base, body_max).routes(),
        *OnchainRoutes(
            database,
            service.wallet_handoff,
            route_context.viewers,
            route_context.address_limiter,
            body_max,
        ).routes(),
        *HealthRoutes(route_context.readiness).routes(),
        *PackageRoutes(settings.packages_dir).routes(),
    ]


def make_operator_routes(route_context: RouteContext) -> list[Route]:
    """Return the operator routes that need the service."""
    context = route_context.service.operation_context
    api = OperatorApi(context.database, context.encryption, route_context.attempts)
    return [
        *HealthRoutes(route_context.readiness).routes(),
        *PaymentHistoryRoutes(api, context).routes(),
        *OperatorWebhookRoutes(api, context).routes(),
        *OperationRoutes(api, context, make_proposal_view).routes(),
    ]


_HANDLERS = {**HANDLERS, FraudDeniedError: respond_to_denial}
_Writer = KeyUses | CallLogWriter | GatewayCallLog


class StoppedEarlyError(Exception):
    """The process was stopped while it was waiting for the database."""


def build_app(
    settings: Settings,
    open_service: Callable[[Settings], Awaitable[Service]] = open_api_service,
    operator: RoutedApplication | None = None,
) -> "Application":
    """Build the public application, which opens the service on startup and closes it on shutdown.

    The `operator` application, if given, shares the service. If the service cannot be opened, the
    error is available as the application's `failure`.
    """

    @asynccontextmanager
    async def lifespan(app: RoutedApplication) -> AsyncGenerator[None]:
        try:
            start_tracing(settings, "payintent-api")
            service = await _open_unless_stopped(open_service(settings), application.stop)
        except Exception as error:
            application.failure = error
            raise
        key_uses = KeyUses(service.database)
        route_context = application.route_context = _make_route_context(service, settings, key_uses)
        provider = IdentityProvider(settings) if settings.oidc_issuer else None
        app.state.checkout = _make_checkout_context(route_context)
        app.state.portal = _make_portal_context(route_context)
        app.add_routes(make_api_routes(route_context))
        if operator is not None:
            operator.state.console = _make_console_context(route_context, provider)
            operator.add_routes(make_operator_routes(route_context))
        writers: list[_Writer] = [key_uses, service.accounts.log]
        if call_log is not None:
            writers.append(CallLogWriter(call_log, service.database))
        tasks = [asyncio.create_task(writer.run()) for writer in writers]
        yield
        await _stop_writers(tasks, writers)
        app.state.refusals.flush()
        if provider is not None:
            await provider.close()
        await service.close()
        await asyncio.to_thread(tracing.stop)

    call_log = CallLog() if settings.api_calls_days else None
    app = RoutedApplication(PUBLIC_ROUTES, _HANDLERS, on_bug, lifespan, is_starting=True)
    app.state.refusals = RefusalLog()
    application = Application(app, call_log)
    return application


async def _stop_writers(tasks: Sequence[asyncio.Task[None]], writers: Sequence[_Writer]) -> None:
    """Stop the background writers and flush their remaining entries."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for writer in writers:
        await writer.flush()


class Application(CommonHeaders):
    """The public application. The server notifies it before the process stops."""

    def __init__(self, app: RoutedApplication, call_log: CallLog | None) -> None:
        super().__init__(app, call_log.record if call_log else None, RequestTimes())
        self.stop = asyncio.Event()
        self.failure: Exception | None = None  # why the service could not be opened
        self.route_context: RouteContext | None = None  # set once the service is open

    def on_drain(self) -> None:
        """Respond to `/readyz` with 503 from now on."""
        if self.route_context is not None:
            self.route_context.readiness.is_stopping = True

    def on_stop(self) -> None:
        """End event streams and long polls, and stop waiting for the database."""
        self.stop.set()
        if self.route_context is not None:
            self.route_context.payment_changes.close()
            self.route_context.event_changes.close()


def _make_route_context(service: Service, settings: Settings, key_uses: KeyUses) -> RouteContext:
    database, viewers = service.database, ViewerReader(settings)
    attempts = AuthenticationAttempts(settings, viewers)
    authenticator = Authenticator(
        database,
        service.encryption,
        service.accounts,
        attempts,
        settings.api_key_cache_s,
        key_uses=key_uses,
    )
    return RouteContext(
        service=service,
        merchant_api=MerchantApi(authenticator, MerchantRateLimiter(database, settings)),
        attempts=attempts,
        viewers=viewers,
        address_limiter=AddressRateLimiter(settings),
        concurrent_create_requests=ConcurrentCreateRequests(),
        payment_changes=ChangeFeed(
            partial(payment_store.get_change_markers, database),
            service.event_notifier,
            per_key_max=CHECKOUT_STREAMS_MAX,
        ),
        event_changes=ChangeFeed(
            partial(feed_store.get_change_markers, database),
            service.event_notifier,
            per_key_max=FEED_WAITS_MAX,
        ),
        readiness=Readiness(settings),
    )


def _make_checkout_context(route_context: RouteContext) -> CheckoutContext:
    service = route_context.service
    return CheckoutContext(
        settings=service.settings,
        database=service.database,
        urls=service.urls,
        accounts=service.accounts,
        merchants=service.merchants,
        method_usage=MethodUsage(service.database),
        policies=service.policies,
        payment_lookup=service.payment_lookup,
        fraud_screening=service.fraud_screening,
        selection_context=service.selection_context,
        wallet_handoff=service.wallet_handoff,
        refund_address_links=service.refund_address_links,
        link_payments=_make_link_payments(route_context),
        buyer_simulator=service.buyer_simulator,
        pictures=service.pictures,
        viewers=route_context.viewers,
        address_limiter=route_context.address_limiter,
        change_feed=route_context.payment_changes,
    )


def _make_link_payments(route_context: RouteContext) -> LinkPayments:
    service = route_context.service
    return LinkPayments(
        database=service.database,
        settings=service.settings,
        encryption=service.encryption,
        merchants=MerchantDirectory(service.database, service.accounts),
        limiter=route_context.merchant_api.limiter,
        screening=service.fraud_screening,
    )


def _make_portal_context(route_context: RouteContext) -> PortalContext:
    service = route_context.service
    return PortalContext(
        settings=service.settings,
        database=service.database,
        read_database=service.read_database,
        encryption=service.encryption,
        merchants=service.merchants,
        merchant_directory=MerchantDirectory(service.database, service.accounts),
        policies=service.policies,
        payment_lookup=service.payment_lookup,
        refund_creator=service.refund_creator,
        operation_context=service.operation_context,
        attempts=route_context.attempts,
        limiter=route_context.merchant_api.limiter,
        event_trigger=service.event_trigger,
        exports=ExportSlots(),
    )


def _make_console_context(
    route_context: RouteContext, provider: IdentityProvider | None
) -> ConsoleContext:
    service = route_context.service
    return ConsoleContext(
        settings=service.settings,
        database=service.database,
        read_database=service.read_database,
        encryption=service.encryption,
        operation_context=service.operation_context,
        attempts=route_context.attempts,
        viewers=route_context.viewers,
        overview=OverviewCache(service.read_database),
        queue_counts=QueueCounts(service.database),
        endpoints=EndpointComparison(service.settings),
        change_feed=route_context.payment_changes,
        exports=ExportSlots(),
        identity_provider=provider,
    )


async def _open_unless_stopped(pending_service: Awaitable[Service], stop: asyncio.Event) -> Service:
    service = await finish_unless_stopped(pending_service, stop)
    if service is None:
        raise StoppedEarlyError
    return service


def build_operator_app(render_metrics: Callable[[], bytes] = generate_latest) -> RoutedApplication:
    """Build the operator application; `build_app` adds the routes that need the service.

    `render_metrics` returns the body of `/metrics`. By default, it contains only the metrics of
    this process.
    """
    routes = [metrics_route(render_metrics), *OPERATOR_ROUTES]
    app = RoutedApplication(routes, HANDLERS, on_bug, is_starting=True)
    app.state.refusals = RefusalLog()
    return app
