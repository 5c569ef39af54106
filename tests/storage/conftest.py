import asyncio
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from tests.support.world import World


@pytest.fixture
async def raw(world: World) -> AsyncIterator[asyncpg.Connection]:
    """A connection past all code of ours, on the world's database."""
    connection = await world.other_connection()
    yield connection
    await connection.close()


@pytest.fixture
def empty_url(server_url: str) -> Iterator[str]:
    """A database that no migration has seen."""
    name = f"test_{uuid4().hex}"
    asyncio.run(_run(server_url, f'CREATE DATABASE "{name}"'))
    yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    asyncio.run(_run(server_url, f'DROP DATABASE "{name}" WITH (FORCE)'))


async def _run(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()
