"""Advisory locks and leases, which divide work between processes.

Each advisory lock has its own connection. Closing the connection releases the lock.
"""

import asyncio
from collections import Counter as Counts
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from time import monotonic
from typing import Generic, TypeVar
from zlib import crc32

from prometheus_client import Counter

from payintent.core.errors import LockTimeoutError, StorageUnavailableError
from payintent.db.driver import UNAVAILABLE, Connection, connect
from payintent.db.hosts import make_storage_error
from payintent.runtime.log import get_logger

T = TypeVar("T")

STEP_FAILURES = Counter("payintent_worker_failures_total", "Failed worker steps", ["step"])

_log = get_logger("workers")
_IN_FLIGHT_MAX = 200
_IN_FLIGHT_PER_ACCOUNT_MAX = 50  # an unresponsive gateway must not block the others
_LOCK_CLASS = 0x5041  # distinguishes our locks from the locks of other applications
VERIFIED_FOR_S = 1.0  # how long a verification remains valid
CONFIRMATION_TIMEOUT_S = 5.0  # how long the server may take to confirm a lock
_IS_HELD = """
    SELECT EXISTS (SELECT FROM pg_locks
        WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND classid = $1::oid AND objid = $2::oid AND objsubid = 2)
"""


class LockLostError(Exception):
    """The advisory lock is no longer held, or the server has not confirmed it."""


class AdvisoryLock:
    """The result of an attempt to acquire an advisory lock."""

    def __init__(
        self, connection: Connection, number: int, verified_for_s: float, *, is_acquired: bool
    ) -> None:
        self._connection = connection
        self._number = number
        self._verified_for_s = verified_for_s
        self._is_acquired = is_acquired
        self._verified_at = monotonic()
        self._statement = asyncio.Lock()  # the connection runs one statement at a time

    @property
    def is_held(self) -> bool:
        """Whether the lock was acquired and its connection is open. Does not query the server."""
        return self._is_acquired and not self._connection.is_closed()

    async def verify(self) -> None:
        """Raise `LockLostError` unless the server confirms the lock.

        A confirmation remains valid for `verified_for_s` seconds.
        """
        async with self._statement:
            if not self.is_held:
                raise LockLostError
            now = monotonic()
            if now - self._verified_at < self._verified_for_s:
                return
            try:
                is_confirmed = await self._connection.fetchval(_IS_HELD, _LOCK_CLASS, self._number)
            except UNAVAILABLE as error:
                self._connection.terminate()
                raise LockLostError from error
            if not is_confirmed:
                self._is_acquired = False
                raise LockLostError
            self._verified_at = now


@asynccontextmanager
async def hold_advisory_lock(
    url: str,
    name: str,
    verified_for_s: float = VERIFIED_FOR_S,
    confirmation_timeout_s: float = CONFIRMATION_TIMEOUT_S,
) -> AsyncGenerator[AdvisoryLock]:
    """Try to acquire the advisory lock `name`. The caller must check `is_held`.

    `url` must not point to a pooler, because the lock belongs to the connection. Raises
    `StorageUnavailableError` if the server does not respond.
    """
    number = crc32(name.encode())
    with _translate_errors():
        connection = await connect(url, f"payintent-lock-{name}", confirmation_timeout_s)
    try:
        with _translate_errors():
            is_acquired = await connection.fetchval(
                "SELECT pg_try_advisory_lock($1::int, $2::int)", _LOCK_CLASS, _to_int4(number)
            )
        yield AdvisoryLock(connection, number, verified_for_s, is_acquired=bool(is_acquired))
    finally:
        await connection.close()


@contextmanager
def _translate_errors() -> Generator[None]:
    try:
        yield
    except UNAVAILABLE as error:
        raise make_storage_error(error) from error


def _to_int4(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number


class LeasedTaskRunner(Generic[T]):
    """Processes each leased row in its own task.

    If a task fails, its row becomes due again when the lease expires.
    """

    def __init__(
        self,
        name: str,
        batch_max: int,
        claim: Callable[[int, Sequence[int]], Awaitable[list[T]]],
        account_of: Callable[[T], int],
        work: Callable[[T], Awaitable[None]],
    ) -> None:
        self._name = name
        self._batch_max = batch_max
        self._claim = claim
        self._account_of = account_of
        self._work = work
        self._loads: Counts[int] = Counts()  # running tasks per account
        self._tasks: set[asyncio.Task[None]] = set()

    async def step(self) -> bool:
        """Claim due rows and start a task for each. Return whether more may be due."""
        limit = min(self._batch_max, _IN_FLIGHT_MAX - len(self._tasks))
        if limit <= 0:
            return False
        busy_accounts = [
            account_id
            for account_id, count in self._loads.items()
            if count >= _IN_FLIGHT_PER_ACCOUNT_MAX
        ]
        items = await self._claim(limit, busy_accounts)
        for item in items:
            account_id = self._account_of(item)
            self._loads[account_id] += 1
            task = asyncio.create_task(self._work_and_log(item))
            self._tasks.add(task)
            task.add_done_callback(partial(self._finish_task, account_id))
        return len(items) == limit

    async def finish(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work_and_log(self, item: T) -> None:
        try:
            await self._work(item)
        except (StorageUnavailableError, LockTimeoutError) as error:
            _log.warning("step_deferred", step=self._name, why=type(error).__name__)
        except Exception as error:  # noqa: BLE001 - the lease makes the row due again
            STEP_FAILURES.labels(self._name).inc()
            _log.error("step_failed", step=self._name, exc_info=error)

    def _finish_task(self, account_id: int, task: asyncio.Task[None]) -> None:
        self._loads[account_id] -= 1
        if not self._loads[account_id]:
            del self._loads[account_id]
        self._tasks.discard(task)
