"""A test's service on real sockets, in the test's event loop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette

from payintent.app import Application, build_app, build_operator_app
from payintent.http.middleware import CommonHeaders
from payintent.http.server import make_server
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.support.event_loop_server import listening
from tests.support.ports import free_port
from tests.support.world import Api, World

_HOST = "127.0.0.1"


def app_of(settings: Settings, service: Service, operator: Starlette | None = None) -> Application:
    """Build the application of an open service."""

    async def opened(_: Settings) -> Service:
        return service

    return build_app(settings, opened, operator)


@asynccontextmanager
async def serving(settings: Settings, service: Service, port: int) -> AsyncIterator[Application]:
    """Serve the pages and the API on a local port, and yield the application."""
    app = app_of(settings, service)
    async with listening(make_server(app, settings, _HOST, port)):
        yield app
        app.on_stop()  # the shutdown would otherwise wait for streams


@asynccontextmanager
async def serving_api(settings: Settings, world: World) -> AsyncIterator[Api]:
    """Serve a world's API, and yield a client with its merchant's key."""
    port = free_port()
    async with (
        serving(settings, world.service, port) as app,
        Api(f"http://{_HOST}:{port}", world, app) as client,
    ):
        yield client


@asynccontextmanager
async def serving_operator(settings: Settings, service: Service) -> AsyncIterator[str]:
    """Serve a service's operator port in addition to its API, and yield its URL."""
    operator, ports = build_operator_app(), (free_port(), free_port())
    app = app_of(settings, service, operator)
    api = make_server(app, settings, _HOST, ports[0])
    ours = make_server(CommonHeaders(operator), settings, _HOST, ports[1], lifespan=False)
    async with listening(api), listening(ours):
        yield f"http://{_HOST}:{ports[1]}"
        app.on_stop()
