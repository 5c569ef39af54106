"""One PostgreSQL for the whole run, a fresh database for every test, and a service on it."""

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
from tests.support.filled import WORLD_ENV
from tests.support.memory_folder import memory_folder
from tests.support.operation_staging import StageTemplate, open_stage_template, stage_of
from tests.support.operator_port import operator_port
from tests.support.patience import PATIENCE_S
from tests.support.prepared import stop_if_nothing_can_run
from tests.support.serving import serving_api
from tests.support.stage import Stage, out_of_the_sandbox
from tests.support.world import ARRANGED, Api, World, make_world

_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
_ENV = "TESTS_POSTGRES_URL"
#: Where a test has none of its own of these, its merchant may come with its database.
_ARRANGED_BY = ("settings", "service", "gateway", "world")
_TESTS = Path(__file__).parent
_SLOW_FIXTURES = {"anvil", "evm", "chain_url", "raw_chain", "api", "operator", "served", "running"}
_MISSING = pytest.StashKey[dict[str, str]]()  # by test, which tools it lacks
_QUICK = 3  # the turn of a file without slow tests
_COUNT = pytest.StashKey[int]()  # of tests that this process has run
_THAW_EVERY = 2_000  # tests: a thaw collects everything that is imported, which takes seconds


def pytest_configure(config: pytest.Config) -> None:
    """Start the server in the process that all test processes descend from."""
    gc.disable()  # nothing that is imported is garbage: collecting would only look for it
    conformance.watch()
    if _ENV in os.environ or config.option.collectonly:
        return
    folder = Path(tempfile.mkdtemp(prefix="payintent-tests-", dir=memory_folder()))
    folder.chmod(0o711)  # so that the server's own user can reach its data
    postgres = Postgres(folder / "data", durable=False)
    os.environ[_ENV] = f"{postgres.start()}?sslmode=disable"  # nothing there speaks TLS
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
    """Mark as slow what starts something for a test, and begin with the files that take longest.

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
    """Return the rank of a test in a run: if a long file began last, it would run alone."""
    names = {marker.name for marker in item.iter_markers()}
    if "timeout" in names:  # it needs more than the five minutes that every test has
        return 0
    return 1 if names & {"full", "long", "e2e"} else 2 if "slow" in names else _QUICK


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Every test is imported by now; what they hold is no garbage of any of them."""
    leaks.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say which command installs what a test lacks, instead of failing where it is used."""
    if text := item.config.stash[_MISSING].get(item.nodeid):
        pytest.fail(text, pytrace=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Blame a leak on the test that made it, not on the one during which it was collected."""
    yield
    leaks.forget_logs(item.config)
    item.config.stash[_COUNT] = count = item.config.stash.get(_COUNT, 0) + 1
    if count % _THAW_EVERY == 0:
        leaks.thaw()
    if found := leaks.collect_leaks():
        raise leaks.LeakError(f"{item.nodeid} left open: " + "; ".join(found))


@pytest.fixture
def server_url() -> str:
    return os.environ[_ENV]


@pytest.fixture(scope="session")
def databases() -> Iterator[Databases]:
    """Make databases for this process's tests."""
    made = Databases(os.environ[_ENV])
    yield made
    made.close()


@pytest.fixture
def arranged(request: pytest.FixtureRequest) -> bool:
    """Whether the test's merchant comes with its database: arranging it costs more than a copy."""
    fixtures = request.node._fixtureinfo.name2fixturedefs
    return all(len(fixtures.get(name, ())) == 1 for name in _ARRANGED_BY)


@pytest.fixture(scope="module")
def stage_template(databases: Databases, any_settings: Settings) -> Iterator[StageTemplate]:
    """What the operations' examples name, arranged once for the tests of a file."""
    with open_stage_template(databases, any_settings, json.loads(os.environ[WORLD_ENV])) as made:
        yield made


@pytest.fixture
def staged(request: pytest.FixtureRequest, arranged: bool) -> StageTemplate | None:
    """The stage with which the test's database comes, if it does."""
    if not arranged or "stage" not in request.fixturenames:
        return None
    return request.getfixturevalue("stage_template")


@pytest.fixture
def template(arranged: bool, staged: StageTemplate | None) -> str:
    """The database that the test's own is a copy of; a file that fills one gives another."""
    if staged:
        return staged.name
    return WORLD_TEMPLATE if arranged else TEMPLATE


@pytest.fixture
def database_url(databases: Databases, template: str) -> Iterator[str]:
    """A database of the test's own, with real commits."""
    url = databases.take(template)
    yield url
    databases.give_back(url)


@pytest.fixture(scope="session")
def any_settings() -> Settings:
    """Settings of a test but for its database, read once: reading them costs more than a test."""
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
            "drain_s": 0.0,  # no proxy stands before it
            "request_wait_s": 60.0,  # what is not shed by intent is not shed by a slow machine
            "api_key_cache_s": 0.0,
            "policy_cache_s": 0.0,
            "failed_logins_per_address_per_s": 0,  # many tests call with every bad key there is
            "chain_behind_max_s": 0.0,
            # A test that is not about them waits for a busy machine.
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
    """A merchant with two ways to pay at a gateway that does as it is told."""
    if arranged:
        return World(service=service, gateway=gateway, **json.loads(os.environ[WORLD_ENV]))
    return await make_world(service, gateway)


@pytest.fixture
async def api(settings: Settings, world: World) -> AsyncIterator[Api]:
    """The API on a real socket, in this loop."""
    async with serving_api(settings, world) as client:
        yield client


@pytest.fixture
def operated(world: World) -> Service:
    """The service that the operator port works with."""
    return world.service


@pytest.fixture
async def operator(settings: Settings, world: World, operated: Service) -> AsyncIterator[Api]:
    """The operator port, beside the API that opens its service."""
    async with operator_port(settings, world, operated) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_world(databases: Databases, any_settings: Settings) -> AsyncIterator[World]:
    """A merchant that all tests of a file share: none of them changes anything."""
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
    """A connection to the world's database, past the service's code."""
    connection = await world.other_connection()
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
    """The data that the examples of all operations name, outside the sandbox."""
    async with out_of_the_sandbox(world) as service:
        yield await stage_of(staged, world, service)
