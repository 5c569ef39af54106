"""A database for the harness of an adapter that uses our own tables."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg

from payintent.runtime.settings import Settings
from tests.support.contracts import WATCHED_S
from tests.support.databases import TEMPLATE, at_database
from tests.support.world import patient

SERVER_ENV = "TESTS_POSTGRES_URL"
KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


@asynccontextmanager
async def own_database() -> AsyncIterator[Settings]:
    """Create a database on the tests' server, because a test's database ends with the test."""
    server, name = os.environ[SERVER_ENV], f"test_{uuid4().hex}"
    await _run(server, f'CREATE DATABASE "{name}" TEMPLATE "{TEMPLATE}" STRATEGY file_copy')
    values = {
        "database_url": at_database(server, name),
        "pepper": KEY,
        "keyring": f"test:{KEY}",
        "checkout_base": "http://pay.test/c",
        "api_base": "http://pay.test/v1",
        "sandbox": True,
        "database_connections_max": 8,
        "chain_behind_max_s": 0.0,
    }
    try:
        settings = patient(Settings.model_validate(values))
        yield settings.model_copy(update={"chain_watched_s": WATCHED_S})
    finally:
        await _run(server, f'DROP DATABASE "{name}" WITH (FORCE)')


async def _run(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()
