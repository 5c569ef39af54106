"""A minimal pool of connections.

The driver's own pool wraps what it lends and starts a task to take it back, which costs more than
the driver spends on a query.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic
from weakref import WeakSet

from payintent.storage.driver import Connection

IDLE_MAX_S = 300.0  # after this a firewall or pooler in between may have dropped it


class ConnectionPool:
    """At most `size_max` connections, opened on demand; the last used one is lent first."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        size_max: int,
        idle_max_s: float = IDLE_MAX_S,
    ) -> None:
        self._connect = connect
        self._size_max = size_max
        self._idle_max_s = idle_max_s
        self._size = 0  # open, or being opened
        self._idle: list[tuple[Connection, float]] = []  # with the time of release
        self._turns: deque[asyncio.Future[Connection | None]] = deque()
        self._known: WeakSet[Connection] = WeakSet()

    async def acquire(self, timeout_s: float) -> Connection:
        """Borrow a connection; raises `TimeoutError` where none is free in time."""
        while self._idle:
            connection, since = self._idle.pop()
            if not connection.is_closed() and monotonic() - since < self._idle_max_s:
                return connection
            connection.terminate()
            self._size -= 1
        async with asyncio.timeout(timeout_s):
            if self._size < self._size_max:
                self._size += 1
                return await self._open()
            return await self._turn() or await self._open()

    def release(self, connection: Connection) -> None:
        """Take a connection back; one that was left inside a transaction is closed."""
        if connection.is_in_transaction():
            connection.terminate()
        self._pass_on(None if connection.is_closed() else connection)

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
        for connection in self._known:
            connection.terminate()

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
            connection = await self._connect()
        except BaseException:
            self._pass_on(None)
            raise
        self._known.add(connection)
        return connection
