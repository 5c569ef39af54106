"""One PostgreSQL for the whole run, a fresh database for every test, and a service on it."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from payintent.api.app import build_app, build_operator_app
from payintent.api.envelope import Envelope
from payintent.api.server import server
from payintent.config import Settings
from payintent.sandbox.postgres import Postgres
from payintent.service import Service, open_service
from payintent.storage import migrate
from tests.support.fakes import FakeGateway
from tests.support.world import Api, World, free_port, make_world

_TEMPLATE = "payintent_template"
_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
_ENV = "PAYINTENT_TEST_SERVER"


def pytest_configure(config: pytest.Config) -> None:
    """Start the server in the process that all test processes descend from."""
    if _ENV in os.environ or config.option.collectonly:
        return
    folder = Path(tempfile.mkdtemp(prefix="payintent-tests-", dir=_memory_folder()))
    folder.chmod(0o711)  # so that the server's own user can reach its data
    postgres = Postgres(folder / "data", durable=False)
    os.environ[_ENV] = postgres.start()
    asyncio.run(_make_template(os.environ[_ENV]))

    def stop() -> None:
        postgres.stop()
        os.environ.pop(_ENV, None)
        shutil.rmtree(folder, ignore_errors=True)

    config.add_cleanup(stop)


def _memory_folder() -> str | None:
    shared = Path("/dev/shm")  # noqa: S108 - Linux's own folder in memory
    return str(shared) if shared.is_dir() and os.access(shared, os.W_OK) else None


async def _make_template(url: str) -> None:
    await _run(url, f'CREATE DATABASE "{_TEMPLATE}"')
    await migrate.migrate(_named(url, _TEMPLATE))


async def _run(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


def _named(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


@pytest.fixture
def server_url() -> str:
    return os.environ[_ENV]


@pytest.fixture
def database_url(server_url: str) -> Iterator[str]:
    """A database of one's own, with real commits."""
    name = f"test_{uuid4().hex}"
    asyncio.run(
        _run(server_url, f'CREATE DATABASE "{name}" TEMPLATE "{_TEMPLATE}" STRATEGY file_copy')
    )
    yield _named(server_url, name)
    asyncio.run(_run(server_url, f'DROP DATABASE "{name}" WITH (FORCE)'))


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings.model_validate(
        {
            "database_url": database_url,
            "pepper": _KEY,
            "keyring": f"test:{_KEY}",
            "checkout_base": "http://pay.test/c",
            "api_base": "http://pay.test/v1",
            "sandbox": True,
            "database_connections_max": 8,
            "api_key_cache_s": 0.0,
            "policy_cache_s": 0.0,
        }
    )


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    service = await open_service(settings, {"fake": gateway})
    yield service
    await service.close()


@pytest.fixture
async def world(service: Service, gateway: FakeGateway) -> World:
    """A merchant with two ways to pay at a gateway that does as it is told."""
    return await make_world(service, gateway)


@pytest.fixture
async def api(settings: Settings, world: World) -> AsyncIterator[Api]:
    """The API on a real socket, in this loop."""

    async def opened(_: Settings) -> Service:
        return world.service

    port = free_port()
    running = server(build_app(settings, opened), settings, "127.0.0.1", port)
    task = asyncio.create_task(running.serve())
    while not running.started:
        await asyncio.sleep(0.01)
    async with Api(f"http://127.0.0.1:{port}", world) as client:
        yield client
    running.should_exit = True
    await task


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
