"""Stage races between a first transaction that holds its locks and a second that must wait."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from payintent.db.database import Tx
from payintent.service import Service, open_service
from tests.support.timeouts import PATIENCE_S
from tests.support.world import World

_BLOCKED = """
    SELECT count(*)
    FROM pg_stat_activity
    WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0
"""


class _RolledBack(Exception):  # noqa: N818
    pass


class HeldTransaction:
    """A transaction that has done its work, and waits for a commit or rollback."""

    def __init__(self, world: World, work: Callable[[Tx], Awaitable[Any]]) -> None:
        self._worked = asyncio.Event()
        self._word = asyncio.Event()
        self._rolls_back = False
        self._task = asyncio.create_task(self._run(world, work))

    async def _run(self, world: World, work: Callable[[Tx], Awaitable[Any]]) -> None:
        async with world.database.transaction() as tx:
            await work(tx)
            self._worked.set()
            await self._word.wait()
            if self._rolls_back:
                raise _RolledBack

    async def worked(self) -> None:
        waiter = asyncio.create_task(self._worked.wait())
        await asyncio.wait({waiter, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            waiter.cancel()
            await self._task

    async def commit(self) -> None:
        self._word.set()
        await self._task

    async def roll_back(self) -> None:
        self._rolls_back = True
        self._word.set()
        await asyncio.gather(self._task, return_exceptions=True)


@asynccontextmanager
async def hold_transaction(
    world: World, work: Callable[[Tx], Awaitable[Any]]
) -> AsyncIterator[HeldTransaction]:
    """Do work in a transaction that stays open. It is rolled back unless it is committed."""
    first = HeldTransaction(world, work)
    await first.worked()
    try:
        yield first
    finally:
        await first.roll_back()


async def wait_until_blocked(world: World, *tasks: asyncio.Task[Any]) -> None:
    """Wait until this many backends are blocked. Fail if a task ends without being blocked."""
    watcher = await world.open_connection()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while await watcher.fetchval(_BLOCKED) < len(tasks):
                for task in tasks:
                    assert not task.done(), f"it did not wait: {task}"
                await asyncio.sleep(0.002)
    finally:
        await watcher.close()


@asynccontextmanager
async def open_with_short_lock_timeout(world: World) -> AsyncIterator[Service]:
    """Open another process's service with a lock timeout of 0.1 s."""
    settings = world.service.settings.model_copy(update={"database_lock_timeout_ms": 100})
    service = await open_service(settings, {"fake": world.gateway})
    try:
        yield service
    finally:
        await service.close()
