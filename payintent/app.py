"""The application: routes, error handlers, and what all answers share."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

# Imported at the start, before processes are forked, so that the first call to a gateway, the first
# create, and the first buyer who pays on a chain, do not wait for the import.
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
from payintent.api.context import AppContext
from payintent.api.errors import HANDLERS, on_bug
from payintent.api.event_feed import FEED_WAITS_MAX
from payintent.api.key_uses import KeyUses
from payintent.api.middleware import CommonHeaders
from payintent.api.oidc.provider import IdentityProvider
from payintent.api.payments import answer_denial
from payintent.api.rate_limits import AddressRateLimiter, MerchantRateLimiter
from payintent.api.readiness import Readiness
from payintent.api.refusal_log import RefusalLog
from payintent.api.request_times import RequestTimes, templates
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
from payintent.portal.routes import PORTAL_ROUTES
from payintent.routes import OPERATOR_ROUTES, ROUTES
from payintent.service import Service, open_api_service
from payintent.storage import event_feed, payment_changes
from payintent.tracing_export import start_tracing
from payintent.waiting import finish_unless_stopped

#: The template of each handler's route, for the log of merchants' calls.
_TEMPLATES = templates(ROUTES)
_HANDLERS = {**HANDLERS, FraudDeniedError: answer_denial}
Writer = KeyUses | CallLogWriter | GatewayCallLog


class StoppedEarlyError(Exception):
    """The process was stopped while it still waited for the database."""


def build_app(
    settings: Settings,
    open_: Callable[[Settings], Awaitable[Service]] = open_api_service,
    operator: RoutedApplication | None = None,
) -> "Application":
    """Build the application; it opens the service when it starts and closes it when it stops.

    The `operator` application, if there is one, uses the same service. If the service cannot be
    opened, `failure` says why.
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
        context = app.state.context = _make_context(service, settings, uses)
        app.state.checkout = _make_checkout_context(service, context)
        app.state.portal = _make_portal_context(service, context)
        provider = IdentityProvider(settings) if settings.oidc_issuer else None
        if operator is not None:
            operator.state.context = context
            operator.state.console = _make_console_context(service, context, provider)
        writers = [uses, service.accounts.log, *_call_writers(service, application)]
        writing = [asyncio.create_task(each.run()) for each in writers]
        yield
        await _end(writing, writers)
        app.state.refusals.flush()
        if provider is not None:
            await provider.close()
        await service.close()
        await asyncio.to_thread(tracing.stop)

    app = RoutedApplication([*ROUTES, *PORTAL_ROUTES], _HANDLERS, on_bug, lifespan)
    app.state.refusals = RefusalLog()

    application = Application(app, CallLog() if settings.api_calls_days else None)
    return application


def _call_writers(service: Service, application: "Application") -> list[Writer]:
    """Give what writes the log of merchants' calls, where it is kept."""
    calls = application.calls
    return [CallLogWriter(calls, service.database, _TEMPLATES)] if calls is not None else []


async def _end(writing: Sequence[asyncio.Task[None]], writers: Sequence[Writer]) -> None:
    """End what writes beside the requests, and write what is left."""
    for task in writing:
        task.cancel()
    await asyncio.gather(*writing, return_exceptions=True)
    for writer in writers:
        await writer.flush()


class Application(CommonHeaders):
    """The whole application, which is told when its process is about to end."""

    def __init__(self, app: RoutedApplication, calls: CallLog | None) -> None:
        super().__init__(app, calls, RequestTimes(app.routes))
        self.calls = calls
        self._state = app.state
        self.stop = asyncio.Event()
        self.failure: Exception | None = None  # why the process does not serve

    def draining(self) -> None:
        """Answer `/readyz` with 503 from now on."""
        if (context := self._context()) is not None:
            context.readiness.is_stopping = True

    def stopping(self) -> None:
        """End the streams, which would otherwise go on for ever, and the wait for the database."""
        self.stop.set()
        if (context := self._context()) is not None:
            context.change_feed.close()
            context.event_feed.close()

    def _context(self) -> AppContext | None:
        return cast("AppContext | None", getattr(self._state, "context", None))


def _make_context(service: Service, settings: Settings, uses: KeyUses) -> AppContext:
    edge = ViewerReader(settings)
    attempts = Attempts(settings, edge)
    authenticator = Authenticator(
        service.database,
        service.encryption,
        service.accounts,
        attempts,
        settings.api_key_cache_s,
        uses=uses,
    )
    return AppContext(
        service,
        authenticator,
        attempts,
        edge,
        MerchantRateLimiter(service.database, settings),
        AddressRateLimiter(settings),
        ConcurrentCreates(),
        ChangeFeed(
            partial(payment_changes.change_markers, service.database),
            service.event_notifier,
            per_key_max=CHECKOUT_STREAMS_MAX,
        ),
        ChangeFeed(
            partial(event_feed.change_markers, service.database),
            service.event_notifier,
            per_key_max=FEED_WAITS_MAX,
        ),
        Readiness(settings),
    )


def _make_checkout_context(service: Service, context: AppContext) -> CheckoutContext:
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
        viewers=context.viewers,
        addresses=context.addresses,
        change_feed=context.change_feed,
    )


def _make_portal_context(service: Service, context: AppContext) -> PortalContext:
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
        attempts=context.attempts,
    )


def _make_console_context(
    service: Service, context: AppContext, provider: IdentityProvider | None
) -> ConsoleContext:
    return ConsoleContext(
        settings=service.settings,
        database=service.database,
        reading=service.reading,
        encryption=service.encryption,
        operation_context=service.operation_context,
        attempts=context.attempts,
        viewers=context.viewers,
        overview=OverviewCache(service.reading),
        endpoints=EndpointComparison(service.settings),
        change_feed=context.change_feed,
        identity_provider=provider,
    )


async def _open_unless_stopped(opening: Awaitable[Service], stop: asyncio.Event) -> Service:
    service = await finish_unless_stopped(opening, stop)
    if service is None:
        raise StoppedEarlyError
    return service


def build_operator_app(metrics: Callable[[], bytes] = generate_latest) -> RoutedApplication:
    """Build the application of the operator's port; `build_app` gives it the service.

    `metrics` writes what `/metrics` answers; by default those of this process.
    """
    app = RoutedApplication(OPERATOR_ROUTES, HANDLERS, on_bug)
    app.state.metrics = metrics
    app.state.refusals = RefusalLog()
    return app
