"""The operator's port on a real socket, in the loop of a test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from payintent.api.middleware import CommonHeaders
from payintent.api.server import make_server
from payintent.app import build_app, build_operator_app
from payintent.config import Settings
from payintent.service import Service
from tests.support.listening import listening
from tests.support.world import Api, World, free_port


@asynccontextmanager
async def operator_port(settings: Settings, world: World, operated: Service) -> AsyncIterator[Api]:
    """Serve the operator's port of a service, beside the API that opens it."""

    async def opened(_: Settings) -> Service:
        return operated

    app = build_operator_app()
    ports = free_port(), free_port()
    api = make_server(build_app(settings, opened, app), settings, "127.0.0.1", ports[0])
    ours = make_server(CommonHeaders(app), settings, "127.0.0.1", ports[1], lifespan=False)
    async with (
        listening(api),
        listening(ours),
        Api(f"http://127.0.0.1:{ports[1]}", world) as client,
    ):
        yield client
