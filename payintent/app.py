"""The application: routes, error table, and what holds for every answer."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

# Loaded at the start, so that the first buyer who waits for a gateway does not wait for it too.
import aiohttp  # noqa: F401  # pyright: ignore[reportUnusedImport]
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from payintent.api.authentication import Authenticator
from payintent.api.authentication_failures import Attempts
from payintent.api.concurrent_creates import Replays
from payintent.api.context import Context
from payintent.api.errors import HANDLERS, error
from payintent.api.middleware import Envelope
from payintent.api.rate_limits import AddressLimiter, Limiter
from payintent.api.readiness import Readiness
from payintent.api.request_body import TooLarge, WrongType
from payintent.api.viewer import Edge
from payintent.config import Settings
from payintent.domain.errors import Code
from payintent.payments.change_feed import Lookout
from payintent.routes import OPERATOR_ROUTES, ROUTES
from payintent.service import Service, open_service


def build_app(
    settings: Settings,
    open_: Callable[[Settings], Awaitable[Service]] = open_service,
    operator: Starlette | None = None,
) -> Envelope:
    """Build the application; it opens the service when it starts and closes it when it stops.

    The `operator` application, if there is one, works with the same service.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        service = await open_(settings)
        edge = Edge(settings)
        attempts = Attempts(settings, edge, service.secrets)
        kept_s = settings.api_key_cache_s
        authenticator = Authenticator(
            service.database, service.secrets, service.accounts, attempts, kept_s
        )
        app.state.context = Context(
            service,
            authenticator,
            attempts,
            edge,
            Limiter(service.database, settings),
            AddressLimiter(settings),
            Replays(),
            Lookout(service.database, service.wake),
            Readiness(settings),
        )
        if operator is not None:
            operator.state.context = app.state.context
        yield
        await service.close()

    app = Starlette(routes=ROUTES, exception_handlers=_HANDLERS, lifespan=lifespan)
    app.router.redirect_slashes = False  # a route is what it says; nothing is sent elsewhere

    def stopping() -> None:
        if (here := getattr(app.state, "context", None)) is not None:
            here.lookout.close()

    return Envelope(app, stopping)


def build_operator_app() -> Starlette:
    """Build what the operator's port serves; `build_app` gives it the service."""
    app = Starlette(routes=OPERATOR_ROUTES, exception_handlers=_HANDLERS)
    app.router.redirect_slashes = False
    return app


async def _too_large(_: Request, exc: Exception) -> Response:
    del exc
    return error(Code.BAD_REQUEST, "the body is too large", 413)


async def _wrong_type(_: Request, exc: Exception) -> Response:
    del exc
    return error(Code.BAD_REQUEST, "Content-Type must be application/json", 415)


_HANDLERS: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
    **HANDLERS,
    TooLarge: _too_large,
    WrongType: _wrong_type,
}
