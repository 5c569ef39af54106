"""Page and API on a real socket, in the loop of the test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from payintent.api.middleware import CommonHeaders
from payintent.api.server import make_server
from payintent.app import build_app
from payintent.config import Settings
from payintent.service import Service
from tests.support.listening import listening


@asynccontextmanager
async def serving(settings: Settings, service: Service, port: int) -> AsyncIterator[CommonHeaders]:
    """Serve page and API on a port of this machine; gives the application."""

    async def opened(_: Settings) -> Service:
        return service

    app = build_app(settings, opened)
    async with listening(make_server(app, settings, "127.0.0.1", port)):
        yield app
        app.stopping()  # or streams would be waited for
