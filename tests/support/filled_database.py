"""A database that is filled once for the tests of a file. Each test gets a copy."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import asyncpg

from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.support.databases import WORLD_TEMPLATE, Databases, name_of
from tests.support.fakes import FakeGateway
from tests.support.world import World

#: The contents of a copy of the template with a merchant, as JSON in the environment.
WORLD_ENV = "TESTS_WORLD"


@contextmanager
def open_filled_template(
    databases: Databases,
    settings: Settings,
    fill: Callable[[World, asyncpg.Connection], Awaitable[None]],
) -> Generator[str]:
    """Fill a template database that can be copied while the block runs; yield its name."""
    url = databases.take(WORLD_TEMPLATE)
    asyncio.run(_fill(settings.model_copy(update={"database_url": url}), fill))
    yield name_of(url)
    databases.forget(name_of(url))
    databases.give_back(url)


async def _fill(
    settings: Settings, fill: Callable[[World, asyncpg.Connection], Awaitable[None]]
) -> None:
    gateway = FakeGateway()
    service = await open_service(settings, {"fake": gateway})
    world = World(service=service, gateway=gateway, **json.loads(os.environ[WORLD_ENV]))
    connection = await world.open_connection()
    await fill(world, connection)
    await connection.close()
    await service.close()
