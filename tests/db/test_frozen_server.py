"""If a server is frozen, callers do not wait long, and no statement is cancelled.

If a commit is cancelled when it waits for a standby, it stays committed on a server that may no
longer be the primary. A replayed request would then be acknowledged.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from payintent.core.errors import StorageUnavailableError
from payintent.db.database import Database
from payintent.db.driver import connect_as
from payintent.db.pool import ConnectionPool
from payintent.payments.cancel import cancel_by_merchant
from payintent.payments.create import PaymentCreator
from payintent.payments.model import Payment
from tests.support.database_proxy import DatabaseProxy, open_freezable_proxy
from tests.support.timeouts import PATIENCE_S, wait_until
from tests.support.world import World

pytestmark = pytest.mark.full

_CHECKS = 11  # until a statement times out
_NAME = {"application_name": "frozen"}


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[DatabaseProxy]:
    async with open_freezable_proxy(database_url) as proxy:
        yield proxy


@pytest.fixture
async def pool(proxy: DatabaseProxy) -> AsyncIterator[ConnectionPool]:
    """A pool with a single connection, so that a test fails if it is not returned."""
    pool = ConnectionPool(lambda: connect_as(proxy.url, _NAME, pooled=False), 1, PATIENCE_S * 10)
    yield pool
    proxy.thaw()
    await pool.close()


@pytest.fixture
def database(world: World, pool: ConnectionPool) -> Database:
    return Database(world.service.settings, pool=pool)


def pass_statement_timeout(pool: ConnectionPool, times: int = _CHECKS) -> None:
    """Let the statement timeout pass."""
    for _ in range(times):
        pool.check()


async def start_withheld(proxy: DatabaseProxy, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start work, and wait until the proxy holds back a message."""
    task = asyncio.create_task(work)
    await proxy.holding()
    return task


async def assert_recovered(proxy: DatabaseProxy, database: Database, connections: int) -> None:
    """Check that the pool's slot is free, and that the server received no cancel request."""
    proxy.thaw()
    assert len(await database.fetch("SELECT 1")) == 1
    assert (proxy.connections, proxy.cancels) == (connections, 0)


async def is_cancelled(world: World, payment: Payment) -> bool:
    return await world.status(payment) == "CANCELLED"


async def test_an_unanswered_statement_is_abandoned_together_with_its_connection(
    proxy: DatabaseProxy, pool: ConnectionPool, database: Database
) -> None:
    await database.fetch("SELECT 1")
    proxy.freeze()
    task = await start_withheld(proxy, database.fetch("SELECT 2"))
    pass_statement_timeout(pool, _CHECKS - 1)
    assert not task.done()
    pass_statement_timeout(pool, 1)
    with pytest.raises(StorageUnavailableError):
        await task
    await assert_recovered(proxy, database, 2)


async def test_an_extended_timeout_applies_only_to_its_transaction(
    database: Database, pool: ConnectionPool
) -> None:
    async with database.transaction() as tx:
        await tx.extend_timeouts(statement_s=36_000, lock_s=30)
        pass_statement_timeout(pool, 2 * _CHECKS)
        for setting, expected in (("idle_in_transaction_session", "10h"), ("lock", "30s")):
            [timeout] = (await tx.fetch(f"SHOW {setting}_timeout"))[0].values()  # type: ignore[arg-type]
            assert timeout == expected
    with pytest.raises(StorageUnavailableError):
        await _pause_in_transaction(database, pool)


async def _pause_in_transaction(database: Database, pool: ConnectionPool) -> None:
    async with database.transaction() as tx:
        await tx.fetch("SELECT 1")
        pass_statement_timeout(pool)
        await tx.fetch("SELECT 2")


async def test_a_statement_on_a_frozen_server_ends_at_its_deadline(
    proxy: DatabaseProxy, world: World
) -> None:
    pool = ConnectionPool(lambda: connect_as(proxy.url, _NAME, pooled=False), 1, 0.2)
    database = Database(world.service.settings, pool=pool)
    proxy.freeze_after(b"SELECT 2")
    with pytest.raises(StorageUnavailableError):
        await database.row("SELECT 2")
    proxy.thaw()
    await pool.close()


async def test_all_idle_connections_to_an_unresponsive_server_are_closed_together(
    proxy: DatabaseProxy, world: World
) -> None:
    pool = ConnectionPool(lambda: connect_as(proxy.url, _NAME, pooled=False), 3, PATIENCE_S * 10)
    database = Database(world.service.settings, pool=pool)
    connections = [await pool.acquire(PATIENCE_S) for _ in range(3)]
    for connection in connections:
        pool.release(connection)
    proxy.freeze()
    task = await start_withheld(proxy, database.fetch("SELECT 1"))
    pass_statement_timeout(pool)
    with pytest.raises(StorageUnavailableError):
        await task
    assert all(connection.is_closed() for connection in connections)
    proxy.thaw()
    await pool.close()


@pytest.mark.parametrize("prepared", [True, False])
async def test_a_statement_is_not_cancelled_on_the_server_if_its_caller_is_cancelled(
    proxy: DatabaseProxy, database: Database, *, prepared: bool
) -> None:
    await database.fetch("SELECT 2" if prepared else "SELECT 1")
    proxy.freeze()
    task = await start_withheld(proxy, database.fetch("SELECT 2"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await assert_recovered(proxy, database, 2)


async def test_a_callers_timeout_around_a_statement_does_not_cancel_it_on_the_server(
    proxy: DatabaseProxy, database: Database
) -> None:
    proxy.freeze_after(b"SELECT 2")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await database.fetch("SELECT 2")
    await assert_recovered(proxy, database, proxy.connections + 1)


async def test_an_unanswered_commit_may_have_happened_and_is_not_cancelled(
    proxy: DatabaseProxy, pool: ConnectionPool, database: Database, world: World
) -> None:
    payment = await world.create()

    async def cancel() -> None:
        async with database.transaction() as tx:
            await cancel_by_merchant(tx, payment, None)
            proxy.freeze_after(b"COMMIT")

    cancelling = await start_withheld(proxy, cancel())
    pass_statement_timeout(pool)
    with pytest.raises(StorageUnavailableError):
        await cancelling
    await assert_recovered(proxy, database, 2)
    await wait_until(lambda: is_cancelled(world, payment), "the commit has happened")
    assert await world.events(payment) == ["payment.cancelled"]


async def test_cancelling_a_caller_during_the_commit_does_not_cancel_the_commit(
    proxy: DatabaseProxy, database: Database, world: World
) -> None:
    payment = await world.create()

    async def cancel() -> None:
        async with database.transaction() as tx:
            await cancel_by_merchant(tx, payment, None)
            proxy.freeze_after(b"COMMIT")

    cancelling = await start_withheld(proxy, cancel())
    cancelling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelling
    await assert_recovered(proxy, database, 2)
    await wait_until(lambda: is_cancelled(world, payment), "the commit has happened")


async def test_an_unanswered_create_can_be_repeated_without_creating_a_second_payment(
    proxy: DatabaseProxy, pool: ConnectionPool, database: Database, world: World
) -> None:
    request = world.request(key=uuid4())
    creator = PaymentCreator(database)
    proxy.freeze_after(b"INSERT INTO payment")
    creating = await start_withheld(proxy, creator.create(request))
    pass_statement_timeout(pool)
    with pytest.raises(StorageUnavailableError):
        await creating
    proxy.thaw()
    first = await creator.create(request)
    second = await creator.create(replace(request))
    assert first.payment.id == second.payment.id
    assert second.replayed
    assert len(await world.rows("SELECT 1 FROM payment")) == 1
    assert proxy.cancels == 0


async def test_an_unanswered_rollback_does_not_hide_the_original_error(
    proxy: DatabaseProxy, pool: ConnectionPool, database: Database
) -> None:
    async def fail() -> None:
        async with database.transaction():
            proxy.freeze()
            raise ZeroDivisionError

    failing = await start_withheld(proxy, fail())
    pass_statement_timeout(pool)
    with pytest.raises(ZeroDivisionError):
        await failing
    await assert_recovered(proxy, database, 2)


async def test_a_long_transaction_continues_if_its_statements_are_answered(
    pool: ConnectionPool, database: Database
) -> None:
    async with database.transaction() as tx:
        for _ in range(3):
            pass_statement_timeout(pool, _CHECKS - 2)
            await tx.fetch("SELECT 1")


async def test_an_unanswered_connection_attempt_ends_when_the_acquire_timeout_passes(
    proxy: DatabaseProxy, world: World, pool: ConnectionPool
) -> None:
    settings = world.service.settings.model_copy(update={"database_acquire_timeout_s": 0.05})
    impatient = Database(settings, pool=pool)
    proxy.freeze()
    with pytest.raises(StorageUnavailableError):
        await impatient.fetch("SELECT 1")
    await assert_recovered(proxy, Database(world.service.settings, pool=pool), 2)


async def test_a_pool_with_a_frozen_server_can_be_closed(
    proxy: DatabaseProxy, pool: ConnectionPool, database: Database
) -> None:
    connection = await pool.acquire(PATIENCE_S)
    pool.release(connection)
    proxy.freeze()
    await asyncio.wait_for(database.close(), PATIENCE_S)
    assert connection.is_closed()


async def test_a_transaction_that_cannot_commit_raises_an_error(
    database: Database,
) -> None:
    async def ignore_error() -> None:
        async with database.transaction() as tx:
            with contextlib.suppress(asyncpg.DivisionByZeroError):
                await tx.fetch("SELECT 1 / 0")

    with pytest.raises(StorageUnavailableError):
        await ignore_error()
