"""A proxy in front of PostgreSQL that can stop forwarding, like a frozen or partitioned server."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

from tests.support.tcp_server import TcpServer
from tests.support.timeouts import wait_until

_CANCEL_REQUEST = (80877102).to_bytes(4, "big")
_READ_MAX = 64 * 1024


class DatabaseProxy:
    """Forwards in both directions until it is frozen. It then still accepts connections."""

    def __init__(self, url: str) -> None:
        self.target_url = url
        self._target = urlsplit(url)
        self._server = TcpServer(self._serve)
        self._flows = asyncio.Event()
        self._flows.set()
        self._freezing = b""
        self.connections = 0
        self.cancels = 0
        self.held = 0  # client messages that were held back, or whose responses were

    @property
    def url(self) -> str:
        login = self._target.netloc.rpartition("@")[0]
        return urlunsplit(self._target._replace(netloc=f"{login}@{self.host}"))

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    def freeze(self) -> None:
        """Stop forwarding in both directions."""
        self._flows.clear()

    def freeze_after(self, words: bytes) -> None:
        """Forward the next client message that contains these words, and then nothing."""
        self._freezing = words

    def thaw(self) -> None:
        """Resume forwarding, including data that was held back."""
        self.held = 0
        self._flows.set()

    async def holding(self) -> None:
        """Wait until a client's message is held back."""
        await wait_until(lambda: self.held, "the proxy holds back a message")

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        first = await reader.read(_READ_MAX)
        if first[4:8] == _CANCEL_REQUEST:
            self.cancels += 1
        if not self._flows.is_set():
            self.held += 1
            await self._flows.wait()
        try:
            there, back = await asyncio.open_connection(self._target.hostname, self._target.port)
        except ConnectionError:
            writer.transport.abort()
            return
        back.write(first)
        ways = asyncio.gather(self._out(reader, back), self._back(there, writer))
        try:
            await ways
        except ConnectionError:
            pass
        finally:
            ways.cancel()
            back.transport.abort()
            writer.transport.abort()

    async def _out(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_READ_MAX):
            if not self._flows.is_set():
                self.held += 1
                await self._flows.wait()
            if self._freezing and self._freezing in data:
                self._freezing = b""
                self.held += 1
                self._flows.clear()
            writer.write(data)
        raise ConnectionResetError

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_READ_MAX):
            await self._flows.wait()
            writer.write(data)
        raise ConnectionResetError


@asynccontextmanager
async def open_freezable_proxy(url: str) -> AsyncGenerator[DatabaseProxy]:
    """Yield a proxy in front of a database."""
    proxy = DatabaseProxy(url)
    await proxy.start()
    try:
        yield proxy
    finally:
        proxy.thaw()
        await proxy.stop()
