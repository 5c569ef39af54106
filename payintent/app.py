"""The applications of an API process, and the service and parts that their routes use."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

# Imported here, before processes are forked, so that the first gateway call, the first payment and
# the first on-chain buyer do not wait for the import.
import aiohttp  # noqa: F401  # pyright: ignore[reportUnusedImport]
import Crypto.Hash.keccak  # noqa: F401  # pyright: ignore[reportUnusedImport]
from prometheus_client import generate_latest

import payintent.payments.fraud_screening  # noqa: F401  # pyright: ignore[reportUnusedImport]
from payintent import tracing
from payintent.api.application import RoutedApplication
from payintent.api.authentication import Authenticator
from payintent.api.authentication_failures import Attempts
from payintent.api.call_log import CallLog, CallLogWriter
from payintent.api.checkout_events import CHECKOUT_STREAMS_MAX
from payintent.api.concurrent_creates import ConcurrentCreates
from payintent.api.errors import HANDLERS, on_bug
from payintent.api.event_feed import FEED_WAITS_MAX
from payintent.api.key_uses import KeyUses
from payintent.api.merchant_access import MerchantApi
from payintent.api.middleware import CommonHeaders
from payintent.api.oidc.provider import IdentityProvider
from payintent.api.payments import answer_denial
from payintent.api.rate_limits import AddressRateLimiter, MerchantRateLimiter
from payintent.api.readiness import Readiness
from payintent.api.refusal_log import RefusalLog
from payintent.api.request_times import RequestTimes, metrics_route
from payintent.api.viewer import ViewerReader
from payintent.checkout.context import CheckoutContext
from payintent.config import Settings
from payintent.console.context import ConsoleContext
from payintent.domain.fraud import FraudDeniedError
from payintent.onchain.compare_endpoints import EndpointComparison
from payintent.payments.change_feed import ChangeFeed
from payintent.payments.gateway_calls import GatewayCallLog
from payintent.payments.overview_cache import OverviewCache
from payintent.portal.context import PortalContext
from payintent.routes import (
    OPERATOR_ROUTES,
    PUBLIC_ROUTES,
    RouteParts,
    api_routes,
    operator_routes,
)
from payintent.service import Service, open_api_service
from payintent.storage import event_feed, payment_changes
from payintent.tracing_export import start_tracing
from payintent.waiting import finish_unless_stopped

_HANDLERS = {**HANDLERS, FraudDeniedError: answer_denial}
_Writer = KeyUses | CallLogWriter | GatewayCallLog


class StoppedEarlyError(Exception):
    """The process was stopped while it still waited for the database."""


def build_app(
    settings: Settings,
    open_: Callable[[Settings], Awaitable[Service]] = open_api_service,
    operator: RoutedApplication | None = None,
) -> "Application":
    """Build the public application; it opens the service at its start and closes it at its end.

    The `operator` application, if any, uses the same service. If the service cannot be opened,
    `failure` has the reason.
    """

    @asynccontextmanager
    async def lifespan(app: RoutedApplication) -> AsyncGenerator[None]:
        try:
            start_tracing(settings, "payintent-api")
            service = await _open_unless_stopped(open_(settings), application.stop)
        except Exception as error:
            application.failure = error
            raise
        uses = KeyUses(service.database)
        parts = application.parts = _make_parts(service, settings, uses)
        provider = IdentityProvider(settings) if settings.oidc_issuer else None
        app.state.checkout = _make_checkout_context(parts)
        app.state.portal = _make_portal_context(parts)
        app.complete(api_routes(parts))
        if operator is not None:
            operator.state.console = _make_console_context(parts, provider)
            operator.complete(operator_routes(parts))
        writers: list[_Writer] = [uses, service.accounts.log]
        if calls is not None:
            writers.append(CallLogWriter(calls, service.database))
        tasks = [asyncio.create_task(writer.run()) for writer in writers]
        yield
        await _stop_writers(tasks, writers)
        app.state.refusals.flush()
        if provider is not None:
            await provider.close()
        await service.close()
        await asyncio.to_thread(tracing.stop)

    calls = CallLog() if settings.api_calls_days else None
    app = RoutedApplication(PUBLIC_ROUTES, _HANDLERS, on_bug, lifespan, is_starting=True)
    app.state.refusals = RefusalLog()
    application = Application(app, calls)
    return application


async def _stop_writers(tasks: Sequence[asyncio.Task[None]], writers: Sequence[_Writer]) -> None:
    """Stop the background writers and write the remaining entries."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for writer in writers:
        await writer.flush()


class Application(CommonHeaders):
    """The public application; it is notified before its process stops."""

    def __init__(self, app: RoutedApplication, calls: CallLog | None) -> None:
        super().__init__(app, calls.note if calls else None, RequestTimes())
        self.stop = asyncio.Event()
        self.failure: Exception | None = None  # why the process cannot serve
        self.parts: RouteParts | None = None  # once the service is open

    def draining(self) -> None:
        """Respond to `/readyz` with 503 from now on."""
        if self.parts is not None:
            self.parts.readiness.is_stopping = True

    def stopping(self) -> None:
        """End the event streams, and the wait for the database."""
        self.stop.set()
        if self.parts is not None:
            self.parts.payment_changes.close()
            self.parts.event_changes.close()


def _make_parts(service: Service, settings: Settings, uses: KeyUses) -> RouteParts:
    database, viewers = service.database, ViewerReader(settings)
    attempts = Attempts(settings, viewers)
    authenticator = Authenticator(
        database,
        service.encryption,
        service.accounts,
        attempts,
        settings.api_key_cache_s,
        uses=uses,
    )
    return RouteParts(
        service=service,
        merchant_api=MerchantApi(authenticator, MerchantRateLimiter(database, settings)),
        attempts=attempts,
        viewers=viewers,
        addresses=AddressRateLimiter(settings),
        concurrent_creates=ConcurrentCreates(),
        payment_changes=ChangeFeed(
            partial(payment_changes.change_markers, database),
            service.event_notifier,
            per_key_max=CHECKOUT_STREAMS_MAX,
        ),
        event_changes=ChangeFeed(
            partial(event_feed.change_markers, database),
            service.event_notifier,
            per_key_max=FEED_WAITS_MAX,
        ),
        readiness=Readiness(settings),
    )


def _make_checkout_context(parts: RouteParts) -> CheckoutContext:
    service = parts.service
    return CheckoutContext(
        settings=service.settings,
        database=service.database,
        urls=service.urls,
        accounts=service.accounts,
        merchants=service.merchants,
        policies=service.policies,
        payment_lookup=service.payment_lookup,
        fraud_screening=service.fraud_screening,
        selection_context=service.selection_context,
        wallet_handoff=service.wallet_handoff,
        buyer_simulator=service.buyer_simulator,
        pictures=service.pictures,
        viewers=parts.viewers,
        addresses=parts.addresses,
        change_feed=parts.payment_changes,
    )


def _make_portal_context(parts: RouteParts) -> PortalContext:
    service = parts.service
    return PortalContext(
        settings=service.settings,
        database=service.database,
        reading=service.reading,
        encryption=service.encryption,
        merchants=service.merchants,
        policies=service.policies,
        payment_lookup=service.payment_lookup,
        refund_creator=service.refund_creator,
        operation_context=service.operation_context,
        attempts=parts.attempts,
    )


def _make_console_context(parts: RouteParts, provider: IdentityProvider | None) -> ConsoleContext:
    service = parts.service
    return ConsoleContext(
        settings=service.settings,
        database=service.database,
        reading=service.reading,
        encryption=service.encryption,
        operation_context=service.operation_context,
        attempts=parts.attempts,
        viewers=parts.viewers,
        overview=OverviewCache(service.reading),
        endpoints=EndpointComparison(service.settings),
        change_feed=parts.payment_changes,
        identity_provider=provider,
    )


async def _open_unless_stopped(opening: Awaitable[Service], stop: asyncio.Event) -> Service:
    service = await finish_unless_stopped(opening, stop)
    if service is None:
        raise StoppedEarlyError
    return service


def build_operator_app(metrics: Callable[[], bytes] = generate_latest) -> RoutedApplication:
    """Build the application of the operator's port; `build_app` completes it with the service.

    `metrics` formats the metrics for `/metrics`; by default those of this process.
    """
    routes = [metrics_route(metrics), *OPERATOR_ROUTES]
    app = RoutedApplication(routes, HANDLERS, on_bug, is_starting=True)
    app.state.refusals = RefusalLog()
    return app
