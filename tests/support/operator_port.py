"""The operator port on a real socket, in a test's event loop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.support.running_service import serving_operator
from tests.support.world import Api, World


@asynccontextmanager
async def operator_port(settings: Settings, world: World, operated: Service) -> AsyncIterator[Api]:
    """Serve a service's operator port, and yield a client."""
    async with serving_operator(settings, operated) as base, Api(base, world) as client:
        yield client
