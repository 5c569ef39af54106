"""Several hosts in a URL, and servers that do not accept writes."""

import asyncio
import socket
from collections.abc import AsyncIterator
from inspect import signature
from pathlib import PurePath
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from asyncpg import connect_utils

from payintent.core.errors import StorageUnavailableError
from payintent.db import locks
from payintent.db.database import Database
from payintent.db.driver import Connection, connect, connect_as
from payintent.db.hosts import NOT_READABLE, format_hosts, get_database_hosts
from payintent.db.locks import LockLostError, hold_advisory_lock
from payintent.db.pool import ConnectionPool
from payintent.payments.cancel import cancel_by_merchant
from payintent.service import open_service
from tests.support.database_proxy import DatabaseProxy, open_freezable_proxy
from tests.support.ports import free_port
from tests.support.timeouts import PATIENCE_S, wait_until
from tests.support.world import World

_NAME = {"application_name": "hosts"}
#: URLs that are invalid, or that the driver reads differently if the password is not encoded.
UGLY = [
    "postgresql://me:s3/cr3t@db.example:5432/pay",
    "postgresql://me:12/s3cr3t@db.example:5432/pay",
    "postgresql://me:12/s3cr3t@/pay?host=/run/pg",
    "postgresql://me:s3@cr3t@db.example:5432/pay",
    "postgresql://me:12#s3cr3t@db.example:5432/pay",
    "postgresql://me:12/s3#cr3t@db.example:5432/pay",
    "postgresql://me:12?s3cr3t@db.example:5432/pay",
    "postgresql://me:12?s3=cr3t@db.example:5432/pay",
    "postgresql://me:12?dbname=s3cr3t@db.example:5432/pay",
    "postgresql://me:12?search_path=s3cr3t@db.example/pay",
    "postgresql://me:s3[cr3t@db.example/pay",
    "postgresql://me:s3\u2100cr3t@db.example/pay",  # it is normalized to `a/c`
    "postgresql://me:s3cr3t%40db.example:5432/pay",
    "postgresql://me:s3cr3t/pay",
    "postgresql://me@db.example/pay?password=s3cr3t#1",
    "postgresql:me:s3cr3t@db.example/pay",
    "me:s3cr3t@db.example/pay",
    "http://me:s3cr3t@db.example/pay",
    "host=db.example dbname=pay user=me password=s3cr3t",
    "host='db.example' password='s3/cr3t@x' search_path=payments",
    "service=pay password=s3cr3t",
    "postgresql://me:s3cr3t@db.example:99999/pay",
    "postgresql://me:s3cr3t@a:1,,b/pay",
    "postgresql://?host=a,b&port=1,2,3&password=s3cr3t",
    "postgresql://?service=pay&password=s3cr3t",
    "s3cr3t",
    "",
]


@pytest.fixture
async def proxies(database_url: str) -> AsyncIterator[list[DatabaseProxy]]:
    async with (
        open_freezable_proxy(database_url) as first,
        open_freezable_proxy(database_url) as second,
    ):
        yield [first, second]


def at_hosts(url: str, *hosts: str) -> str:
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{login}@{','.join(hosts)}"))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p%40ss@db.example:5433/x?sslmode=require", "db.example:5433"),
        ("postgresql://u:p@[::1]/x", "[::1]:5432"),
        ("postgresql://a:1,b/x", "a:1, b:5432"),
        ("postgresql:///x?host=a,b&port=1,2", "a:1, b:2"),
        ("postgresql:///x?host=/run/pg", "/run/pg"),
        ("postgresql:///x", "localhost:5432"),
    ],
)
def test_a_formatted_url_has_hosts_and_ports_but_no_login(url: str, expected: str) -> None:
    assert format_hosts(url) == expected


@pytest.mark.parametrize("url", UGLY)
def test_no_part_of_an_ambiguous_url_is_shown(url: str) -> None:
    assert format_hosts(url) == NOT_READABLE


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://me:p%2Fa%40s%23s%3F@a:1,b/pay?search_path=payments", "a:1, b:5432"),
        ("postgres://me:p%zz:w@[fd00::1]:6/pay_2?dbname=other&sslmode=disable", "[fd00::1]:6"),
        ("postgresql://me:pw@%2Frun%2Fpg/pay", "/run/pg"),
        ("postgresql://me:pw@a/pay?port=7", "a:5432"),
        ("postgresql://?host=a:9,b&user=me&password=pw&dbname=pay", "a:9, b:5432"),
        ("postgresql://me:pw@a", "a:5432"),
    ],
)
def test_the_formatted_hosts_match_the_hosts_that_the_driver_connects_to(
    url: str, expected: str
) -> None:
    parse = connect_utils._parse_connect_dsn_and_args
    no_arguments = dict.fromkeys(signature(parse).parameters)
    addresses, _ = parse(**no_arguments | {"dsn": url, "ssl": False})
    hosts = [
        str(PurePath(address).parent) if isinstance(address, str) else f"{address[0]}:{address[1]}"
        for address in addresses
    ]
    formatted = format_hosts(url)
    assert formatted.replace("[", "").replace("]", "") == ", ".join(hosts)
    assert formatted == expected


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://u:p@a/db", ["postgresql://u:p@a/db"]),
        ("postgresql:///db?host=/run/pg", ["postgresql:///db?host=/run/pg"]),
        (
            "postgresql://u:p@a:1,b/db?sslmode=disable",
            ["postgresql://u:p@a:1/db?sslmode=disable", "postgresql://u:p@b/db?sslmode=disable"],
        ),
        (
            "postgresql://u@/db?host=a,b&port=1,2",
            ["postgresql://u@/db?port=1&host=a", "postgresql://u@/db?port=2&host=b"],
        ),
        (
            "postgresql://u@a,b/db?port=7",
            ["postgresql://u@a/db?port=7", "postgresql://u@b/db?port=7"],
        ),
    ],
)
def test_a_url_with_several_hosts_is_split_into_a_url_for_each_host(
    url: str, hosts: list[str]
) -> None:
    assert [host for _, host in get_database_hosts(url).list_in_order()] == hosts


async def test_a_refusing_host_is_skipped_and_the_working_host_is_then_tried_first(
    proxies: list[DatabaseProxy], database_url: str
) -> None:
    url = at_hosts(database_url, f"127.0.0.1:{free_port()}", proxies[0].host, proxies[1].host)
    for _ in range(2):
        await (await connect(url)).close()
    assert [proxy.connections for proxy in proxies] == [2, 0]
    await proxies[0].stop()
    await (await connect(url)).close()
    assert [proxy.connections for proxy in proxies] == [2, 1]


async def test_an_unresponsive_host_does_not_use_up_the_timeout_of_the_next_host(
    proxies: list[DatabaseProxy], database_url: str
) -> None:
    proxies[0].freeze()
    url = at_hosts(database_url, proxies[0].host, proxies[1].host)
    await (await connect(url)).close()
    await (await connect(url)).close()
    assert [proxy.connections for proxy in proxies] == [1, 2]


async def test_a_host_is_not_tried_first_again_if_the_caller_gave_up_waiting_for_it(
    proxies: list[DatabaseProxy], database_url: str
) -> None:
    proxies[0].freeze()
    url = at_hosts(database_url, proxies[0].host, proxies[1].host)
    connecting = asyncio.create_task(connect(url))
    await proxies[0].holding()
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await (await connect(url)).close()
    assert [proxy.connections for proxy in proxies] == [1, 1]


async def test_a_read_only_server_is_rejected(world: World, database_url: str) -> None:
    name = urlsplit(database_url).path[1:]
    await world.rows(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    database = Database(world.service.settings)
    with pytest.raises(StorageUnavailableError, match="it is a standby or read-only"):
        await database.fetch("SELECT 1")
    await world.rows(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
    await database.fetch("SELECT 1")
    await database.close()


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[ConnectionPool]:
    pool = ConnectionPool(lambda: connect_as(database_url, _NAME, pooled=False), 2, PATIENCE_S)
    yield pool
    await pool.close()


async def test_a_rejected_write_closes_all_idle_connections_to_the_server(
    world: World, pool: ConnectionPool
) -> None:
    database = Database(world.service.settings, pool=pool)
    writable, read_only = await pool.acquire(PATIENCE_S), await pool.acquire(PATIENCE_S)
    await read_only.execute("SET default_transaction_read_only = on")
    pool.release(writable)
    pool.release(read_only)  # the pool reuses the last connection first
    with pytest.raises(StorageUnavailableError):
        await database.fetch("UPDATE payment SET version = version")
    assert read_only.is_closed()
    assert writable.is_closed()
    await database.fetch("UPDATE payment SET version = version")


async def test_a_connection_that_becomes_read_only_is_removed_from_the_pool(
    pool: ConnectionPool,
) -> None:
    connection = await pool.acquire(PATIENCE_S)
    await connection.execute("SET default_transaction_read_only = on")
    pool.release(connection)
    pool.check()
    assert connection.is_closed()
    pool.release(await pool.acquire(PATIENCE_S))


async def test_an_idle_connection_sends_keepalives_before_firewalls_drop_it(
    database_url: str,
) -> None:
    connection = cast("Any", await connect(database_url))
    stream = connection._transport.get_extra_info("socket")
    assert stream.family == socket.AF_INET
    assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
    await connection.close()


async def test_every_connection_has_an_application_name_for_its_purpose(world: World) -> None:
    settings = world.service.settings
    worker = await open_service(settings, {}, "payintent-worker")
    listening = asyncio.create_task(worker.event_notifier.listen(lambda: None))
    worker.event_notifier.notify()
    names = {"payintent-worker", "payintent-listen", "payintent-notify", "payintent-lock-watch:bsc"}

    async def are_connected() -> bool:
        rows = await world.rows(
            "SELECT application_name FROM pg_stat_activity WHERE datname = current_database()"
        )
        return names <= {row["application_name"] for row in rows}

    async with hold_advisory_lock(settings.database_url, "watch:bsc"):
        await wait_until(are_connected, "all are connected")
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await worker.close()


async def test_a_lock_counts_as_lost_if_its_server_does_not_respond(
    proxies: list[DatabaseProxy],
) -> None:
    proxy = proxies[0]
    async with hold_advisory_lock(proxy.url, "watch:bsc", 0.0, PATIENCE_S) as lock:
        await lock.verify()
    async with hold_advisory_lock(proxy.url, "watch:bsc", 0.0, 0.5) as lock:
        proxy.freeze()
        with pytest.raises(LockLostError):
            await lock.verify()
        assert not lock.is_held
    assert proxy.cancels == 0


async def test_a_lock_at_a_server_that_ends_the_connection_is_unavailable(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, the server shuts down after it has accepted the connection."""

    async def connect_and_terminate(url: str, *arguments: Any) -> Connection:
        connection = await connect(url, *arguments)
        killer = await asyncpg.connect(url)
        pid = await connection.fetchval("SELECT pg_backend_pid()")
        await killer.execute("SELECT pg_terminate_backend($1)", pid)
        await killer.close()
        return connection

    monkeypatch.setattr(locks, "connect", connect_and_terminate)
    with pytest.raises(StorageUnavailableError):
        async with hold_advisory_lock(database_url, "watch:bsc"):
            pass
    monkeypatch.undo()
    url = f"postgresql://payintent@127.0.0.1:{free_port()}/payintent"
    with pytest.raises(StorageUnavailableError, match="connection refused"):
        async with hold_advisory_lock(url, "watch:bsc"):
            pass


async def test_a_lock_that_was_not_acquired_cannot_be_verified(database_url: str) -> None:
    async with (
        hold_advisory_lock(database_url, "watch:bsc"),
        hold_advisory_lock(database_url, "watch:bsc") as second,
    ):
        with pytest.raises(LockLostError):
            await second.verify()


async def test_nothing_is_committed_after_the_lock_is_lost(world: World) -> None:
    payment = await world.create()
    killer = await asyncpg.connect(world.service.settings.database_url)
    async with hold_advisory_lock(world.service.settings.database_url, "watch:bsc", 0.0) as lock:
        database = world.database.make_guarded(lock.verify)
        assert await database.row("SELECT 1") is not None

        async def cancel() -> None:
            async with database.transaction() as tx:
                await cancel_by_merchant(tx, payment, None)
                await killer.execute(
                    "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
                    "WHERE application_name = 'payintent-lock-watch:bsc' "
                    "AND datname = current_database()"
                )

        with pytest.raises(LockLostError):
            await cancel()
        with pytest.raises(LockLostError):
            await database.fetch("SELECT 1")
    await killer.close()
    assert await world.status(payment) == "PENDING"
    assert await world.events(payment) == []
