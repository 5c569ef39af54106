"""The pool on a real server is bounded and fair, and never lends a broken connection."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from prometheus_client import REGISTRY

from payintent.db.driver import UNAVAILABLE, connect
from payintent.db.pool import ConnectionPool

SIZE = 2
SOON_S = 0.05


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[ConnectionPool]:
    pool = ConnectionPool(lambda: connect(database_url), SIZE)
    yield pool
    await asyncio.wait_for(pool.close(), 5)


async def get_backend_pid(connection: object) -> int:
    return await connection.fetchval("SELECT pg_backend_pid()")  # type: ignore[attr-defined]


async def test_a_released_connection_is_reused(pool: ConnectionPool) -> None:
    first = await pool.acquire(1)
    pool.release(first)
    second = await pool.acquire(1)
    pool.release(second)
    assert second is first


async def test_the_number_of_connections_is_limited(pool: ConnectionPool) -> None:
    connections = [await pool.acquire(1) for _ in range(SIZE)]
    with pytest.raises(TimeoutError):
        await pool.acquire(SOON_S)
    for connection in connections:
        pool.release(connection)


async def test_waits_are_measured_unless_an_idle_connection_is_available(
    pool: ConnectionPool,
) -> None:
    def waits() -> float:
        return REGISTRY.get_sample_value("payintent_database_wait_seconds_count") or 0

    before = waits()
    connections = [
        await pool.acquire(1) for _ in range(SIZE)
    ]  # each waits until its connection is open
    with pytest.raises(TimeoutError):
        await pool.acquire(SOON_S)
    assert waits() == before + SIZE + 1
    for connection in connections:
        pool.release(connection)
    pool.release(await pool.acquire(1))
    assert waits() == before + SIZE + 1


async def test_connections_are_assigned_in_order_of_request(pool: ConnectionPool) -> None:
    connections = [await pool.acquire(1) for _ in range(SIZE)]
    order: list[int] = []

    async def wait(number: int) -> None:
        connection = await pool.acquire(1)
        order.append(number)
        pool.release(connection)

    tasks = [asyncio.create_task(wait(number)) for number in range(5)]
    await asyncio.sleep(0)
    pool.release(connections.pop())
    await asyncio.gather(*tasks)
    pool.release(connections.pop())
    assert order == [0, 1, 2, 3, 4]


async def test_a_connection_assigned_to_a_cancelled_caller_is_not_lost(
    pool: ConnectionPool,
) -> None:
    connections = [await pool.acquire(1) for _ in range(SIZE)]
    task = asyncio.create_task(pool.acquire(1))
    await asyncio.sleep(0)
    pool.release(connections[0])  # assigned to the task, which is cancelled before it resumes
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await pool.acquire(SOON_S) is connections[0]
    for connection in connections:
        pool.release(connection)


async def test_a_connection_released_inside_a_transaction_is_closed(pool: ConnectionPool) -> None:
    busy = await pool.acquire(1)
    await busy.execute("BEGIN")
    pool.release(busy)
    fresh = await pool.acquire(1)
    assert busy.is_closed()
    assert not fresh.is_in_transaction()
    pool.release(fresh)


async def test_connections_terminated_by_the_server_are_replaced(
    pool: ConnectionPool, database_url: str
) -> None:
    terminated = [await pool.acquire(1) for _ in range(SIZE)]
    killer = await asyncpg.connect(database_url)
    for connection in terminated:
        await killer.execute(
            "SELECT pg_terminate_backend($1, 1000)", await get_backend_pid(connection)
        )
    task = asyncio.create_task(pool.acquire(1))
    for connection in terminated:
        with pytest.raises(UNAVAILABLE):
            await get_backend_pid(connection)
        pool.release(connection)
    fresh = [await task, await pool.acquire(1)]
    for connection in fresh:
        assert await get_backend_pid(connection)
        pool.release(connection)
    await killer.close()


async def test_an_idle_connection_terminated_by_the_server_is_not_reused(
    pool: ConnectionPool, database_url: str
) -> None:
    idle = await pool.acquire(1)
    pid = await get_backend_pid(idle)
    pool.release(idle)
    killer = await asyncpg.connect(database_url)
    await killer.execute("SELECT pg_terminate_backend($1, 1000)", pid)
    await killer.close()
    while not idle.is_closed():
        await asyncio.sleep(0)
    fresh = await pool.acquire(1)
    assert await get_backend_pid(fresh) != pid
    pool.release(fresh)


async def test_a_connection_that_was_idle_for_too_long_is_not_reused(database_url: str) -> None:
    pool = ConnectionPool(lambda: connect(database_url), SIZE, idle_max_s=0.0)
    idle = await pool.acquire(1)
    pool.release(idle)
    fresh = await pool.acquire(1)
    assert idle.is_closed()
    assert await get_backend_pid(fresh)
    pool.release(fresh)
    await pool.close()


async def test_failed_connection_attempts_do_not_use_up_the_pool(database_url: str) -> None:
    outcomes = iter([OSError("away"), OSError("away"), OSError("away"), None])

    async def connect_eventually() -> object:
        failure = next(outcomes)
        if failure:
            raise failure
        return await connect(database_url)

    pool = ConnectionPool(connect_eventually, SIZE)  # type: ignore[arg-type]
    for _ in range(3):
        with pytest.raises(OSError, match="away"):
            await pool.acquire(1)
    pool.release(await pool.acquire(1))
    await pool.close()


async def test_closing_waits_until_acquired_connections_are_released(database_url: str) -> None:
    pool = ConnectionPool(lambda: connect(database_url), SIZE)
    busy, idle = await pool.acquire(1), await pool.acquire(1)
    pool.release(idle)
    closing = asyncio.create_task(pool.close())
    while not idle.is_closed():
        await asyncio.sleep(0)
    assert not closing.done()
    assert await get_backend_pid(busy)
    pool.release(busy)
    await closing
    assert busy.is_closed()


async def test_acquiring_from_a_closed_pool_fails_immediately(pool: ConnectionPool) -> None:
    await pool.close()
    with pytest.raises(TimeoutError, match="closed"):
        await asyncio.wait_for(pool.acquire(60), 5)
