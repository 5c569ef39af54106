import asyncio
from collections.abc import AsyncIterator

import pytest

from payintent.api.app import build_app, build_operator_app
from payintent.api.envelope import Envelope
from payintent.api.server import server
from payintent.config import Settings
from payintent.service import Service
from tests.support.world import Api, World, free_port


@pytest.fixture
def operated(world: World) -> Service:
    """The service that the operator's port works with."""
    return world.service


@pytest.fixture
async def operator(settings: Settings, world: World, operated: Service) -> AsyncIterator[Api]:
    """The operator's port, beside the API that opens its service."""

    async def opened(_: Settings) -> Service:
        return operated

    app = build_operator_app()
    ports = free_port(), free_port()
    running = [
        server(build_app(settings, opened, app), settings, "127.0.0.1", ports[0]),
        server(Envelope(app), settings, "127.0.0.1", ports[1], lifespan=False),
    ]
    tasks = [asyncio.create_task(one.serve()) for one in running]
    while not all(one.started for one in running):
        await asyncio.sleep(0.01)
    async with Api(f"http://127.0.0.1:{ports[1]}", world) as client:
        yield client
    for one in running:
        one.should_exit = True
    await asyncio.gather(*tasks)
