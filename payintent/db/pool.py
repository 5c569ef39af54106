"""A minimal connection pool.

The driver's own pool wraps each connection and starts a task to release it, which takes longer than
the query itself. For the same reason, a single timer, rather than one per statement, checks all
borrowed connections.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from math import ceil
from time import monotonic

from prometheus_client import Histogram

from payintent.db.driver import Connection

IDLE_MAX_S = 300.0  # firewalls and poolers may drop connections that are idle longer
DEADLINE_S = 7.0
_CHECKS = 10  # number of checks before a borrowed connection reaches its deadline

_UNCHECKED = (-1, 0)

WAITS = Histogram(
    "payintent_database_wait_seconds",
    "Time that callers waited for a connection if none was idle",
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)


class ConnectionPool:
    """Up to `size_max` connections, opened on demand. The last one released is borrowed first.

    If no statement begins on a borrowed connection for `deadline_s`, its server is presumed
    unresponsive: the connection and all idle connections to the same server are dropped.
    `set_deadline` extends the deadline for a long transaction.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        size_max: int,
        deadline_s: float = DEADLINE_S,
        idle_max_s: float = IDLE_MAX_S,
        *,
        writes: bool = True,
    ) -> None:
        self._connect = connect
        self._size_max = size_max
        self._idle_max_s = idle_max_s
        self._writes = writes
        self._check_every_s = deadline_s / _CHECKS
        self._checks_max: dict[Connection, int] = {}  # if different from `_CHECKS`
        self._size = 0  # open or being opened
        self._idle: list[tuple[Connection, float]] = []  # with the time of release
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()
        #: The statement count at the last check, and the number of checks since it changed.
        self._borrowed: dict[Connection, tuple[int, int]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(self, timeout_s: float) -> Connection:
        """Borrow a connection. Raises `TimeoutError` if none becomes free within `timeout_s`."""
        if not self._size_max:
            raise TimeoutError("the pool is closed")
        while self._idle:
            connection, released_at = self._idle.pop()
            if not connection.is_closed() and monotonic() - released_at < self._idle_max_s:
                break
            connection.terminate()
            self._size -= 1
        else:
            with WAITS.time():
                async with asyncio.timeout(timeout_s):
                    connection = await self._open_or_wait()
        self._borrowed[connection] = _UNCHECKED
        if self._timer is None:
            self._schedule_check()
        return connection

    def release(self, connection: Connection) -> None:
        """Return a connection to the pool. It is closed if it is still inside a transaction."""
        del self._borrowed[connection]
        self._checks_max.pop(connection, None)
        if connection.is_closed() or connection.is_in_transaction():
            connection.terminate()
            self._pass_to_waiter(None)
        else:
            self._pass_to_waiter(connection)

    def set_deadline(self, connection: Connection, seconds: float) -> None:
        """Replace the deadline of a borrowed connection until it is released."""
        self._checks_max[connection] = ceil(seconds / self._check_every_s)

    def discard(self, connection: Connection) -> None:
        """Drop a connection, and all idle connections to its server because they would fail too."""
        connection.terminate()
        for idle, _ in self._idle:
            if idle.server == connection.server:
                idle.terminate()

    async def close(self) -> None:
        """Close the idle connections, then wait for the borrowed connections and close them."""
        self._size_max = 0
        while self._size:
            connection = self._idle.pop()[0] if self._idle else await self._wait()
            if connection is not None:
                await connection.close()
            self._size -= 1

    def terminate(self) -> None:
        for connection in [*self._borrowed, *(idle for idle, _ in self._idle)]:
            connection.terminate()

    async def _open_or_wait(self) -> Connection:
        if self._size < self._size_max:
            self._size += 1
            return await self._open()
        return await self._wait() or await self._open()

    def _pass_to_waiter(self, connection: Connection | None) -> None:
        """Pass a connection to the first waiting caller, or None to make it open a connection."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        if connection is None:
            self._size -= 1
        else:
            self._idle.append((connection, monotonic()))

    async def _wait(self) -> Connection | None:
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # a connection arrived just before the cancellation
                self._pass_to_waiter(waiter.result())
            raise

    async def _open(self) -> Connection:
        try:
            return await self._connect()
        except BaseException:
            self._pass_to_waiter(None)
            raise

    def _schedule_check(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._check_every_s, self.check)

    def check(self) -> None:
        """Drop unresponsive connections, and idle connections to read-only servers.

        Deadlines are measured in checks, not seconds, so that a process that was suspended does not
        drop its connections.
        """
        self._timer = None
        for connection, (last_count, checks) in list(self._borrowed.items()):
            if connection.is_closed():
                continue
            count = connection.get_statement_count()
            if count != last_count:
                self._borrowed[connection] = (count, 0)
            elif checks < self._checks_max.get(connection, _CHECKS) - 1:
                self._borrowed[connection] = (count, checks + 1)
            else:
                self.discard(connection)
        if self._writes:
            self._terminate_read_only()
        if self._borrowed:
            self._schedule_check()

    def _terminate_read_only(self) -> None:
        for connection, _ in self._idle:
            if not connection.is_closed() and connection.is_read_only():
                connection.terminate()
