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


async def backend(connection: object) -> int:
    return await connection.fetchval("SELECT pg_backend_pid()")  # type: ignore[attr-defined]


async def test_a_connection_given_back_is_lent_again(pool: ConnectionPool) -> None:
    first = await pool.acquire(1)
    pool.release(first)
    again = await pool.acquire(1)
    pool.release(again)
    assert again is first


async def test_nobody_gets_more_connections_than_there_may_be(pool: ConnectionPool) -> None:
    lent = [await pool.acquire(1) for _ in range(SIZE)]
    with pytest.raises(TimeoutError):
        await pool.acquire(SOON_S)
    for connection in lent:
        pool.release(connection)


async def test_a_wait_for_a_connection_is_measured_and_one_that_is_idle_is_no_wait(
    pool: ConnectionPool,
) -> None:
    def waits() -> float:
        return REGISTRY.get_sample_value("payintent_database_wait_seconds_count") or 0

    before = waits()
    lent = [await pool.acquire(1) for _ in range(SIZE)]  # each is opened
    with pytest.raises(TimeoutError):
        await pool.acquire(SOON_S)
    assert waits() == before + SIZE + 1
    for connection in lent:
        pool.release(connection)
    pool.release(await pool.acquire(1))
    assert waits() == before + SIZE + 1


async def test_whoever_waits_longest_is_served_first(pool: ConnectionPool) -> None:
    lent = [await pool.acquire(1) for _ in range(SIZE)]
    order: list[int] = []

    async def wait(number: int) -> None:
        connection = await pool.acquire(1)
        order.append(number)
        pool.release(connection)

    waiting = [asyncio.create_task(wait(number)) for number in range(5)]
    await asyncio.sleep(0)
    pool.release(lent.pop())
    await asyncio.gather(*waiting)
    pool.release(lent.pop())
    assert order == [0, 1, 2, 3, 4]


async def test_a_connection_that_was_handed_to_somebody_who_left_is_not_lost(
    pool: ConnectionPool,
) -> None:
    lent = [await pool.acquire(1) for _ in range(SIZE)]
    leaving = asyncio.create_task(pool.acquire(1))
    await asyncio.sleep(0)
    pool.release(lent[0])  # handed over, and in the same turn of the loop
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await pool.acquire(SOON_S) is lent[0]
    for connection in lent:
        pool.release(connection)


async def test_a_connection_left_inside_a_transaction_is_closed(pool: ConnectionPool) -> None:
    left = await pool.acquire(1)
    await left.execute("BEGIN")
    pool.release(left)
    fresh = await pool.acquire(1)
    assert left.is_closed()
    assert not fresh.is_in_transaction()
    pool.release(fresh)


async def test_connections_that_the_server_ended_make_room_for_new_ones(
    pool: ConnectionPool, database_url: str
) -> None:
    lent = [await pool.acquire(1) for _ in range(SIZE)]
    killer = await asyncpg.connect(database_url)
    for connection in lent:
        await killer.execute("SELECT pg_terminate_backend($1, 1000)", await backend(connection))
    waiting = asyncio.create_task(pool.acquire(1))
    for connection in lent:
        with pytest.raises(UNAVAILABLE):
            await backend(connection)
        pool.release(connection)
    fresh = [await waiting, await pool.acquire(1)]
    for connection in fresh:
        assert await backend(connection)
        pool.release(connection)
    await killer.close()


async def test_an_idle_connection_that_the_server_ended_is_not_lent(
    pool: ConnectionPool, database_url: str
) -> None:
    idle = await pool.acquire(1)
    ended = await backend(idle)
    pool.release(idle)
    killer = await asyncpg.connect(database_url)
    await killer.execute("SELECT pg_terminate_backend($1, 1000)", ended)
    await killer.close()
    while not idle.is_closed():
        await asyncio.sleep(0)
    fresh = await pool.acquire(1)
    assert await backend(fresh) != ended
    pool.release(fresh)


async def test_a_connection_that_was_idle_for_too_long_is_not_lent(database_url: str) -> None:
    pool = ConnectionPool(lambda: connect(database_url), SIZE, idle_max_s=0.0)
    idle = await pool.acquire(1)
    pool.release(idle)
    fresh = await pool.acquire(1)
    assert idle.is_closed()
    assert await backend(fresh)
    pool.release(fresh)
    await pool.close()


async def test_a_failure_to_connect_leaves_room_to_try_again(database_url: str) -> None:
    answers = iter([OSError("away"), OSError("away"), OSError("away"), None])

    async def connect_at_last() -> object:
        failure = next(answers)
        if failure:
            raise failure
        return await connect(database_url)

    pool = ConnectionPool(connect_at_last, SIZE)  # type: ignore[arg-type]
    for _ in range(3):
        with pytest.raises(OSError, match="away"):
            await pool.acquire(1)
    pool.release(await pool.acquire(1))
    await pool.close()


async def test_closing_waits_for_what_is_lent(database_url: str) -> None:
    pool = ConnectionPool(lambda: connect(database_url), SIZE)
    lent, idle = await pool.acquire(1), await pool.acquire(1)
    pool.release(idle)
    closing = asyncio.create_task(pool.close())
    while not idle.is_closed():
        await asyncio.sleep(0)
    assert not closing.done()
    assert await backend(lent)
    pool.release(lent)
    await closing
    assert lent.is_closed()


async def test_a_closed_pool_keeps_nobody_waiting(pool: ConnectionPool) -> None:
    await pool.close()
    with pytest.raises(TimeoutError, match="closed"):
        await asyncio.wait_for(pool.acquire(60), 5)
