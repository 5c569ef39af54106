"""Lists are read from a streaming standby, within a limit on its replication lag.

The standby is real. When a test needs missing rows, it pauses the replay.
"""

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs
from structlog.typing import EventDict

from payintent.db.driver import connect
from payintent.db.replica import ReadDatabase, ReplicaStatus
from payintent.refunds.operations import ListRefunds
from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.support.database_proxy import DatabaseProxy, open_freezable_proxy
from tests.support.databases import TEMPLATE, at_database, make_template
from tests.support.memory_folder import memory_folder
from tests.support.standby import StandbyPair, standby_pair
from tests.support.timeouts import PATIENCE_S, wait_until
from tests.support.world import Api

pytestmark = pytest.mark.full

_LONG_S = 3600.0
_PLAIN = "?sslmode=disable"


@pytest.fixture(scope="module")
def pair() -> Iterator[StandbyPair]:
    folder = Path(tempfile.mkdtemp(prefix="payintent-standby-", dir=memory_folder()))
    folder.chmod(0o711)  # so that the servers' own user can reach its data
    with standby_pair(folder) as pair:
        asyncio.run(make_template(pair.primary.url()))
        yield pair
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def database_url(pair: StandbyPair) -> Generator[str]:
    """A separate database on the primary, which reaches the standby a moment later."""
    name = f"test_{uuid4().hex}"
    asyncio.run(_run(pair.primary.url(), f'CREATE DATABASE "{name}" TEMPLATE "{TEMPLATE}"'))
    yield at_database(pair.primary.url(), name) + _PLAIN
    if not pair.standby.alive():
        pair.start_standby()
    asyncio.run(pair.on_standby("SELECT pg_wal_replay_resume()"))
    asyncio.run(_run(pair.primary.url(), f'DROP DATABASE "{name}" WITH (FORCE)'))


async def _run(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


@pytest.fixture
async def proxy(pair: StandbyPair, database_url: str) -> AsyncIterator[DatabaseProxy]:
    """A proxy in front of the standby."""
    name = database_url.rpartition("/")[2]
    async with open_freezable_proxy(
        at_database(pair.standby.url(), name.removesuffix(_PLAIN))
    ) as proxy:
        yield proxy


@pytest.fixture
def lag_max_s() -> float:
    return _LONG_S


@pytest.fixture
def settings(any_settings: Settings, database_url: str, proxy: DatabaseProxy, lag_max_s: float):
    return any_settings.model_copy(
        update={
            "database_url": database_url,
            "database_read_url": proxy.url + _PLAIN,
            "database_read_lag_max_s": lag_max_s,
            "database_statement_timeout_ms": 1000 * int(_LONG_S),  # too long to expire in a test
            "database_lock_timeout_ms": 1000,
        }
    )


async def list_payment_ids(api: Api, query: str = "") -> list[str]:
    answer = await api.send("GET", f"/v1/payments{query}", headers=api.bearer())
    assert answer.status == 200
    return [payment["id"] for payment in answer.json["data"]]


async def create(api: Api) -> str:
    answer = await api.create()
    assert answer.status == 201
    return answer.json["id"]


def count_reads(server: str) -> float:
    return REGISTRY.get_sample_value("payintent_list_reads_total", {"server": server}) or 0


async def wait_until_used(api: Api) -> None:
    """Wait until the standby has the initial data and serves a list."""

    async def is_used() -> bool:
        api.world.service.read_database._next_check_at = 0.0
        before = count_reads("replica")
        await list_payment_ids(api)
        return count_reads("replica") > before

    await wait_until(is_used, "a list is read on the standby")


async def wait_until_listed(api: Api, *payment_ids: str) -> None:
    """Wait until the standby shows these payments, newest first."""

    async def is_listed() -> bool:
        return await list_payment_ids(api) == list(payment_ids)

    await wait_until(is_listed, f"the list shows {len(payment_ids)} payments")


@asynccontextmanager
async def pause_replay(pair: StandbyPair) -> AsyncGenerator[None]:
    """Let the standby receive the log without replaying it."""
    await pair.on_standby("SELECT pg_wal_replay_pause()")
    connection = await asyncpg.connect(pair.standby.url())

    async def is_paused() -> bool:
        return await connection.fetchval("SELECT pg_get_wal_replay_pause_state()") == "paused"

    try:
        await wait_until(is_paused, "the replay is paused")
        yield
    finally:
        await connection.execute("SELECT pg_wal_replay_resume()")
        await connection.close()


async def test_lists_are_read_from_the_standby_and_a_payment_from_the_primary(
    api: Api, pair: StandbyPair
) -> None:
    first = await create(api)
    await wait_until_used(api)
    await wait_until_listed(api, first)
    async with pause_replay(pair):
        second = await create(api)
        assert await list_payment_ids(api) == [first]
        assert (await api.get(second)).status == 200
    await wait_until_listed(api, second, first)


@pytest.mark.parametrize("lag_max_s", [1.0])
async def test_a_standby_that_is_too_far_behind_is_not_used(api: Api, pair: StandbyPair) -> None:
    with capture_logs() as lines:
        first = await create(api)
        await wait_until_used(api)
        await wait_until_listed(api, first)
        async with pause_replay(pair):
            second = await create(api)
            await wait_until(lambda: is_behind(api, lines), "the standby is too far behind")
            assert await list_payment_ids(api) == [second, first]
            third = await create(api)
            assert await list_payment_ids(api) == [third, second, first]
        await wait_until_used(api)


async def is_behind(api: Api, lines: Sequence[EventDict]) -> bool:
    """Return whether the standby's read period has ended and this was logged."""
    await list_payment_ids(api)  # the standby is checked only when lists are read
    reasons = [line["why"] for line in lines if line["event"] == "replica_not_used"]
    is_over = time.monotonic() > api.world.service.read_database._fresh_until
    return is_over and "it is more than 1 s behind" in reasons


async def test_lists_use_the_primary_while_the_standby_is_down(api: Api, pair: StandbyPair) -> None:
    first = await create(api)
    await wait_until_used(api)
    pair.standby.stop()
    second = await create(api)
    assert await list_payment_ids(api) == [second, first]
    pair.start_standby()
    await wait_until_used(api)


async def test_a_list_is_read_from_the_primary_if_the_standby_is_frozen(
    api: Api, proxy: DatabaseProxy
) -> None:
    payment = await create(api)
    await wait_until_used(api)
    await wait_until_listed(api, payment)
    proxy.freeze()
    tasks = [asyncio.create_task(list_payment_ids(api)) for _ in range(3)]
    await proxy.holding()
    api.world.service.read_database._next_check_at = 0.0
    assert await list_payment_ids(api) == [payment]  # this read checks the standby again
    assert await asyncio.gather(*tasks) == [[payment]] * 3
    assert proxy.cancels == 0


async def test_a_list_is_read_from_the_primary_if_its_table_is_locked_on_the_standby(
    api: Api, pair: StandbyPair, database_url: str
) -> None:
    """For example, a migration has locked the table, and the replay is behind its commit."""
    payment = await create(api)
    await wait_until_used(api)
    await wait_until_listed(api, payment)
    replay = AsyncExitStack()
    migrator = await asyncpg.connect(database_url)
    async with migrator.transaction():
        await migrator.execute("LOCK TABLE payment IN ACCESS EXCLUSIVE MODE")
        await wait_until(partial(is_locked_on_standby, pair, database_url), "the lock is replayed")
        await replay.enter_async_context(pause_replay(pair))
    await migrator.close()
    assert await list_payment_ids(api) == [payment]
    await replay.aclose()


async def is_locked_on_standby(pair: StandbyPair, database_url: str) -> bool:
    name = database_url.rpartition("/")[2].removesuffix(_PLAIN)
    connection = await asyncpg.connect(at_database(pair.standby.url(), name))
    is_locked = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'payment'::regclass"
        " AND mode = 'AccessExclusiveLock')"
    )
    await connection.close()
    return is_locked


async def test_pages_read_from_different_servers_have_no_gap(api: Api, pair: StandbyPair) -> None:
    old = [await create(api) for _ in range(2)]
    await wait_until_used(api)
    await wait_until_listed(api, *reversed(old))
    async with pause_replay(pair):
        new = [await create(api) for _ in range(4)]
        read_database = api.world.service.read_database
        read_database._fresh_until, read_database._next_check_at = (
            0.0,
            float("inf"),
        )  # page 1: primary
        page = await api.send("GET", "/v1/payments?limit=2", headers=api.bearer())
        payment_ids = [payment["id"] for payment in page.json["data"]]
        read_database._next_check_at = 0.0
        while "next_cursor" in page.json:
            query = f"?limit=2&cursor={page.json['next_cursor']}"
            page = await api.send("GET", f"/v1/payments{query}", headers=api.bearer())
            payment_ids += [payment["id"] for payment in page.json["data"]]
        assert payment_ids == [*reversed(new), *reversed(old)]


async def test_a_page_of_sufficiently_old_rows_is_read_from_the_standby(api: Api) -> None:
    service = api.world.service
    now = datetime.now(UTC)
    assert (
        service.read_database.get_page_database(now - timedelta(seconds=_LONG_S))
        is service.database
    )
    old = now - timedelta(seconds=_LONG_S + 60)
    assert service.read_database.get_page_database(old) is service.read_database


async def test_a_payment_read_from_the_standby_after_its_expiry_is_shown_as_expired(
    api: Api, pair: StandbyPair
) -> None:
    payment = await create(api)
    await wait_until_used(api)
    await wait_until_listed(api, payment)
    await api.world.move_clock(3600)

    async def is_replayed() -> bool:
        [row] = await api.world.service.read_database.fetch(
            "SELECT clock() > now() + '59 min' AS moved"
        )
        return row["moved"]

    await wait_until(is_replayed, "the standby has the advanced clock")
    async with pause_replay(pair):
        answer = await api.send("GET", "/v1/payments", headers=api.bearer())
        assert [(item["id"], item["status"]) for item in answer.json["data"]] == [
            (payment, "EXPIRED")
        ]


async def test_operator_lists_are_read_from_the_standby(api: Api) -> None:
    await wait_until_used(api)
    before = count_reads("replica")
    await api.world.perform(ListRefunds())
    assert count_reads("replica") == before + 1


async def test_replica_connections_are_read_only(api: Api) -> None:
    settings = api.world.service.settings
    promoted = settings.model_copy(update={"database_read_url": settings.database_url})
    read_database = ReadDatabase(api.world.database, promoted)
    assert read_database._replica is not None
    [row] = await read_database._replica.fetch("SHOW default_transaction_read_only")
    assert row["default_transaction_read_only"] == "on"
    assert await read_database.fetch(
        "SELECT 1"
    )  # reads still work if it is a primary, as after a promotion
    assert await read_database.get_status() == ReplicaStatus(
        is_standby=False, text="it is a primary, not a replica"
    )
    await read_database.close()


async def test_the_replica_status_reports_a_standby_and_its_failure(
    api: Api, proxy: DatabaseProxy, database_url: str
) -> None:
    read_database = api.world.service.read_database
    await wait_until_used(api)
    status = await read_database.get_status()
    assert status is not None
    assert (status.is_standby, status.text.partition(",")[0]) == (True, "a standby")
    await proxy.stop()
    read_database._replica.drop_connections()  # type: ignore[union-attr]
    status = await read_database.get_status()
    assert status is not None
    assert not status.is_standby
    assert status.text == (
        "the database cannot be reached: connection refused; lists are read from the primary"
    )
    without_replica = api.world.service.settings.model_copy(update={"database_read_url": None})
    assert await ReadDatabase(api.world.database, without_replica).get_status() is None


async def write_until_behind(api: Api, read_database: ReadDatabase) -> ReplicaStatus:
    """Write until the status is no longer current: the position moves only when WAL is flushed."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        await create(api)
        status = await read_database.get_status()
        assert status is not None
        if not status.is_current:
            return status
        assert time.monotonic() < deadline, status


async def test_the_replica_status_reports_that_the_standby_is_too_far_behind(
    api: Api, pair: StandbyPair
) -> None:
    strict_settings = api.world.service.settings.model_copy(update={"database_read_lag_max_s": 0.2})
    read_database = ReadDatabase(api.world.database, strict_settings)
    await wait_until_used(api)  # otherwise the standby may not have this database yet
    async with pause_replay(pair):
        status = await write_until_behind(api, read_database)
    await read_database.close()
    assert status.is_standby
    assert status.text.startswith("a standby that is more than 0.2 s behind, ")


async def test_a_server_that_is_not_a_replica_of_this_database_is_never_used(
    api: Api, server_url: str, pair: StandbyPair
) -> None:
    settings = api.world.service.settings
    for url in (server_url, at_database(pair.standby.url(), "postgres") + _PLAIN):
        wrong_settings = settings.model_copy(update={"database_read_url": url})
        service = await open_service(wrong_settings, {})
        with capture_logs() as lines:
            [row] = await service.read_database.fetch("SELECT current_database() AS name")
        assert row["name"] in settings.database_url
        assert await service.read_database.get_status() == ReplicaStatus(
            is_standby=False,
            text="it is not a replica of this database; lists are read from the primary",
        )
        assert [line["why"] for line in lines if line["event"] == "replica_not_used"] == [
            "it is not a replica of this database"
        ]
        await service.close()


async def test_a_url_with_standby_and_primary_connects_to_the_primary(
    pair: StandbyPair, database_url: str
) -> None:
    standby = pair.standby.url().rpartition("@")[2].partition("/")[0]
    login, _, hosts = database_url.rpartition("@")
    connection = await connect(f"{login}@{standby},{hosts}")
    assert not await connection.fetchval("SELECT pg_is_in_recovery()")
    await connection.close()
