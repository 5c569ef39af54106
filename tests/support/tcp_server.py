"""A server on a loopback socket that closes all of its connections when it stops.

`asyncio.start_server` does not track its connections: a connection that arrives while a test ends
is cancelled before its handler starts, and is never closed. This server records each connection.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Self

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_ACCEPT_STEPS = 5  # turns of the event loop until an accepted connection is created
_READ_MAX = 64 * 1024


class TcpServer:
    """Calls `handle` for every connection. `stop` ends the handlers and closes the connections."""

    def __init__(self, handle: Handler, tls: ssl.SSLContext | None = None) -> None:
        self._handle = handle
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._transports: set[asyncio.BaseTransport] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self) -> None:
        """Start listening, on the previous port if there was one."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self._transports, self._connected),
            "127.0.0.1",
            self.port,
            ssl=self._tls,
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening, and wait until all connections are closed. May be called twice."""
        if self._server is None:
            return
        loop = asyncio.get_running_loop()
        for (
            listening
        ) in self._server.sockets:  # closing it immediately would drop accepted connections
            loop.remove_reader(listening.fileno())
        for _ in range(_ACCEPT_STEPS):
            await asyncio.sleep(0)
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for transport in list(self._transports):
            transport.abort()  # type: ignore[attr-defined]
        while self._transports:
            await asyncio.sleep(0)
        self._server = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._handle(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Connection(asyncio.StreamReaderProtocol):
    """A stream that registers its transport in a set while it is open."""

    def __init__(self, transports: set[asyncio.BaseTransport], connected: Callable[..., None]):
        super().__init__(asyncio.StreamReader(limit=_READ_MAX), connected)
        self._open = transports
        self._made: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made = transport
        self._open.add(transport)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        assert self._made is not None
        self._open.discard(self._made)
