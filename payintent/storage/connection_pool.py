"""A minimal pool of connections.

The driver's own pool wraps what it lends and starts a task to take it back, which costs more than
the driver spends on a query. A deadline for each statement would cost a timer each: one timer
looks at all borrowed connections instead.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from math import ceil
from time import monotonic

from prometheus_client import Histogram

from payintent.storage.driver import Connection

IDLE_MAX_S = 300.0  # after this a firewall or pooler in between may have dropped it
DEADLINE_S = 7.0
_LOOKS = 10  # at a borrowed connection until its deadline

_NOT_SEEN = (-1, 0)

WAITS = Histogram(
    "payintent_database_wait_seconds",
    "How long a connection was waited for, where none was idle: for a turn, or to be opened",
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)


class ConnectionPool:
    """At most `size_max` connections, opened on demand; the last used one is lent first.

    A borrowed connection on which no statement begins for `deadline_s` is cut off, with the idle
    ones of the same server: it does not answer. `allow` gives a long transaction more time.
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
        self._look_s = deadline_s / _LOOKS
        self._allowed: dict[Connection, int] = {}  # looks, where it is more than `_LOOKS`
        self._size = 0  # open, or being opened
        self._idle: list[tuple[Connection, float]] = []  # with the time of release
        self._turns: deque[asyncio.Future[Connection | None]] = deque()
        #: Each with its statements as of the last look, and in how many looks there was no new one.
        self._lent: dict[Connection, tuple[int, int]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(self, timeout_s: float) -> Connection:
        """Borrow a connection; raises `TimeoutError` where none is free in time, or ever again."""
        if not self._size_max:
            raise TimeoutError("the pool is closed")
        while self._idle:
            connection, since = self._idle.pop()
            if not connection.is_closed() and monotonic() - since < self._idle_max_s:
                break
            connection.terminate()
            self._size -= 1
        else:
            with WAITS.time():
                async with asyncio.timeout(timeout_s):
                    connection = await self._open_or_wait()
        self._lent[connection] = _NOT_SEEN
        if self._timer is None:
            self._look_later()
        return connection

    def release(self, connection: Connection) -> None:
        """Take a connection back; one that was left inside a transaction is closed."""
        del self._lent[connection]
        self._allowed.pop(connection, None)
        if connection.is_closed():
            self._pass_on(None)
        elif connection.is_in_transaction():
            connection.terminate()
            self._pass_on(None)
        else:
            self._pass_on(connection)

    def allow(self, connection: Connection, seconds: float) -> None:
        """Let the statements of a borrowed connection take longer, until it is released."""
        self._allowed[connection] = ceil(seconds / self._look_s)

    def discard(self, connection: Connection) -> None:
        """Cut off a connection, and all idle ones of its server, which would fail like it."""
        connection.terminate()
        for idle, _ in self._idle:
            if idle.server == connection.server:
                idle.terminate()

    async def close(self) -> None:
        """Close every connection, borrowed ones when they are released; no more are opened."""
        self._size_max = 0
        while self._size:
            connection = self._idle.pop()[0] if self._idle else await self._turn()
            if connection is not None:
                await connection.close()
            self._size -= 1

    def terminate(self) -> None:
        """Cut off every connection."""
        for connection in [*self._lent, *(idle for idle, _ in self._idle)]:
            connection.terminate()

    async def _open_or_wait(self) -> Connection:
        if self._size < self._size_max:
            self._size += 1
            return await self._open()
        return await self._turn() or await self._open()

    def _pass_on(self, connection: Connection | None) -> None:
        """Hand a connection, or the right to open one, to the caller that waits longest."""
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(connection)
                return
        if connection is None:
            self._size -= 1
        else:
            self._idle.append((connection, monotonic()))

    async def _turn(self) -> Connection | None:
        turn: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was handed over just as we gave up
                self._pass_on(turn.result())
            raise

    async def _open(self) -> Connection:
        try:
            return await self._connect()
        except BaseException:
            self._pass_on(None)
            raise

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._look_s, self.look)

    def look(self) -> None:
        """Cut off what does not answer, or has reported that it takes no writes.

        Looks are counted, not seconds: a process that was stopped for a while cuts nothing off.
        """
        self._timer = None
        for connection, (count, looks) in list(self._lent.items()):
            if connection.is_closed():
                continue
            now = connection.statement_count()
            if now != count:
                self._lent[connection] = (now, 0)
            elif looks < self._allowed.get(connection, _LOOKS) - 1:
                self._lent[connection] = (count, looks + 1)
            else:
                self.discard(connection)
        if self._writes:
            for connection, _ in self._idle:
                if not connection.is_closed() and connection.is_read_only():
                    connection.terminate()
        if self._lent:
            self._look_later()
