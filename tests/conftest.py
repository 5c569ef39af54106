"""A PostgreSQL server for the whole run, and a new database and service for every test."""

import asyncio
import gc
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from payintent_sandbox.postgres import Postgres
from tests.support import conformance, leaks
from tests.support.databases import (
    TEMPLATE,
    WORLD_TEMPLATE,
    Databases,
    copy_template,
    make_template,
)
from tests.support.fakes import FakeGateway
from tests.support.filled_database import WORLD_ENV
from tests.support.memory_folder import memory_folder
from tests.support.operation_examples import Stage, open_outside_sandbox
from tests.support.operation_staging import StageTemplate, open_stage_template, stage_of
from tests.support.operator_port import operator_port
from tests.support.requirements import stop_if_nothing_can_run
from tests.support.running_service import serving_api
from tests.support.timeouts import PATIENCE_S
from tests.support.world import ARRANGED, Api, World, make_world

_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
_ENV = "TESTS_POSTGRES_URL"
#: Tests that do not override these fixtures can use a database that contains their merchant.
_ARRANGED_BY = ("settings", "service", "gateway", "world")
_TESTS = Path(__file__).parent
_SLOW_FIXTURES = {"anvil", "evm", "chain_url", "raw_chain", "api", "operator", "served", "running"}
_MISSING = pytest.StashKey[dict[str, str]]()  # the missing tools by test
_QUICK = 3  # the rank of a file without slow tests
_COUNT = pytest.StashKey[int]()  # the number of tests that this process has run
_THAW_EVERY = 2_000  # tests; a thaw collects all imported objects, which takes seconds


def pytest_configure(config: pytest.Config) -> None:
    """Start the server in the parent of all test processes."""
    gc.disable()  # imported objects are never garbage, so collections need not scan them
    conformance.watch()
    if _ENV in os.environ or config.option.collectonly:
        return
    folder = Path(tempfile.mkdtemp(prefix="payintent-tests-", dir=memory_folder()))
    folder.chmod(0o711)  # so that the server's user can access its data
    postgres = Postgres(folder / "data", durable=False)
    os.environ[_ENV] = f"{postgres.start()}?sslmode=disable"  # the server does not support TLS
    asyncio.run(_make_templates(os.environ[_ENV]))

    def stop() -> None:
        postgres.stop()
        for name in (_ENV, WORLD_ENV):
            os.environ.pop(name, None)
        shutil.rmtree(folder, ignore_errors=True)

    config.add_cleanup(stop)


async def _make_templates(url: str) -> None:
    await make_template(url)
    gateway = FakeGateway()
    service = await open_service(_settings(await copy_template(url)), {"fake": gateway})
    world = await make_world(service, gateway)
    os.environ[WORLD_ENV] = json.dumps({name: getattr(world, name) for name in ARRANGED})
    await service.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that start processes as slow, and start with the files that take longest.

    A test that lacks a tool is not run.
    """
    config.stash[_MISSING] = stop_if_nothing_can_run(items, _TESTS)
    for item in items:
        if _SLOW_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("slow")
    turns: dict[Path, int] = {}
    for item in items:
        turns[item.path] = min(_turn(item), turns.get(item.path, _QUICK))
    items.sort(key=lambda item: turns[item.path])


def _turn(item: pytest.Item) -> int:
    """Return a test's rank in a run: a long file that starts last runs alone."""
    names = {marker.name for marker in item.iter_markers()}
    if "timeout" in names:  # it needs more than the limit of five minutes
        return 0
    return 1 if names & {"full", "long", "e2e"} else 2 if "slow" in names else _QUICK


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """All tests are imported, and their objects are not garbage."""
    leaks.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Report the command that installs a test's missing requirements, instead of failing later."""
    if text := item.config.stash[_MISSING].get(item.nodeid):
        pytest.fail(text, pytrace=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Attribute a leak to the test that caused it, not to the one that collected it."""
    yield
    leaks.forget_logs(item.config)
    item.config.stash[_COUNT] = count = item.config.stash.get(_COUNT, 0) + 1
    if count % _THAW_EVERY == 0:
        leaks.thaw()
    if leaked := leaks.collect_leaks():
        raise leaks.LeakError(f"{item.nodeid} left open: " + "; ".join(leaked))


@pytest.fixture
def server_url() -> str:
    return os.environ[_ENV]


@pytest.fixture(scope="session")
def databases() -> Iterator[Databases]:
    """Create databases for this process's tests."""
    instance = Databases(os.environ[_ENV])
    yield instance
    instance.close()


@pytest.fixture
def arranged(request: pytest.FixtureRequest) -> bool:
    """Whether the test uses a database that already contains a merchant; creating one is slow."""
    fixtures = request.node._fixtureinfo.name2fixturedefs
    return all(len(fixtures.get(name, ())) == 1 for name in _ARRANGED_BY)


@pytest.fixture(scope="module")
def stage_template(databases: Databases, any_settings: Settings) -> Iterator[StageTemplate]:
    """The objects that the operations' examples name, created once for the tests of a file."""
    with open_stage_template(databases, any_settings, json.loads(os.environ[WORLD_ENV])) as result:
        yield result


@pytest.fixture
def staged(request: pytest.FixtureRequest, arranged: bool) -> StageTemplate | None:
    """The stage in the test's database, if any."""
    if not arranged or "stage" not in request.fixturenames:
        return None
    return request.getfixturevalue("stage_template")


@pytest.fixture
def template(arranged: bool, staged: StageTemplate | None) -> str:
    """The template of the test's database. A file that fills a template overrides this."""
    if staged:
        return staged.name
    return WORLD_TEMPLATE if arranged else TEMPLATE


@pytest.fixture
def database_url(databases: Databases, template: str) -> Iterator[str]:
    """A separate database for the test, with real commits."""
    url = databases.take(template)
    yield url
    databases.give_back(url)


@pytest.fixture(scope="session")
def any_settings() -> Settings:
    """A test's settings without its database, read once because reading them is slow."""
    return _settings(os.environ[_ENV])


def _settings(database_url: str) -> Settings:
    settings = Settings.model_validate(
        {
            "database_url": database_url,
            "pepper": _KEY,
            "keyring": f"test:{_KEY}",
            "checkout_base": "http://pay.test/c",
            "api_base": "http://pay.test/v1",
            "sandbox": True,
            "database_connections_max": 8,
            "readiness_cache_s": 0.0,
            "drain_s": 0.0,  # there is no proxy in front of it
            "request_wait_s": 60.0,  # a slow machine must not shed requests unintentionally
            "api_key_cache_s": 0.0,
            "policy_cache_s": 0.0,
            "failed_logins_per_address_per_s": 0,  # many tests send many invalid keys
            "chain_behind_max_s": 0.0,
            # Timeouts do not fail unrelated tests on a busy machine.
            "database_acquire_timeout_s": PATIENCE_S,
            "database_statement_timeout_ms": int(PATIENCE_S * 1000),
        }
    )
    # Many tests move the clock by days and have no watcher.
    return settings.model_copy(update={"chain_watched_s": 1e9})


@pytest.fixture
def settings(any_settings: Settings, database_url: str) -> Settings:
    return any_settings.model_copy(update={"database_url": database_url})


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    service = await open_service(settings, {"fake": gateway})
    yield service
    await service.close()


@pytest.fixture
async def world(service: Service, gateway: FakeGateway, arranged: bool) -> World:
    """A merchant with two methods at a configurable gateway."""
    if arranged:
        return World(service=service, gateway=gateway, **json.loads(os.environ[WORLD_ENV]))
    return await make_world(service, gateway)


@pytest.fixture
async def api(settings: Settings, world: World) -> AsyncIterator[Api]:
    """The API on a real socket, in this event loop."""
    async with serving_api(settings, world) as client:
        yield client


@pytest.fixture
def operated(world: World) -> Service:
    """The service of the operator port."""
    return world.service


@pytest.fixture
async def operator(settings: Settings, world: World, operated: Service) -> AsyncIterator[Api]:
    """The operator port, in addition to the API that opens its service."""
    async with operator_port(settings, world, operated) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_world(databases: Databases, any_settings: Settings) -> AsyncIterator[World]:
    """A merchant shared by all tests in a file. These tests must not change anything."""
    url = databases.take(WORLD_TEMPLATE)
    gateway = FakeGateway()
    service = await open_service(
        any_settings.model_copy(update={"database_url": url}), {"fake": gateway}
    )
    yield World(service=service, gateway=gateway, **json.loads(os.environ[WORLD_ENV]))
    await service.close()
    databases.give_back(url)


@pytest.fixture
async def raw(world: World) -> AsyncIterator[asyncpg.Connection]:
    """A connection to the world's database, without the service."""
    connection = await world.open_connection()
    yield connection
    await connection.close()


@pytest.fixture
def empty_url(server_url: str) -> Iterator[str]:
    """A database without migrations."""
    name = f"test_{uuid4().hex}"
    asyncio.run(_execute(server_url, f'CREATE DATABASE "{name}"'))
    yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    asyncio.run(_execute(server_url, f'DROP DATABASE "{name}" WITH (FORCE)'))


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


@pytest.fixture
async def stage(world: World, staged: StageTemplate | None) -> AsyncIterator[Stage]:
    """The objects that the operations' examples name, in an installation outside the sandbox."""
    async with open_outside_sandbox(world) as service:
        yield await stage_of(staged, world, service)
