"""A connection to the database that can be cut completely, or just when a response arrives."""

import asyncio
import contextlib
from urllib.parse import urlsplit, urlunsplit

from tests.support.tcp_server import TcpServer


class FaultProxy:
    """Forwards TCP. `cut` closes all connections and refuses new connections until `mend`."""

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        assert target.hostname
        self._url, self._host, self._port = target, target.hostname, target.port or 5432
        self._server = TcpServer(self._serve)
        #: If a request contains these bytes, its response is dropped and its connection closed.
        self.lose_answer_to: bytes | None = None

    @property
    def url(self) -> str:
        """The database's URL through the proxy."""
        login = self._url.netloc.rpartition("@")[0]
        return urlunsplit(self._url._replace(netloc=f"{login}@127.0.0.1:{self._server.port}"))

    async def mend(self) -> None:
        await self._server.start()

    async def cut(self) -> None:
        await self._server.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_database, to_database = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        is_lost = asyncio.Event()
        tasks = [
            asyncio.create_task(self._forward_requests(reader, to_database, is_lost)),
            asyncio.create_task(_forward_responses(from_database, writer, is_lost)),
        ]
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for peer in (writer, to_database):
            peer.transport.abort()

    async def _forward_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_lost: asyncio.Event
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                if self.lose_answer_to is not None and self.lose_answer_to in data:
                    self.lose_answer_to = None
                    is_lost.set()
                writer.write(data)
                await writer.drain()


async def _forward_responses(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_lost: asyncio.Event
) -> None:
    with contextlib.suppress(ConnectionError):
        while (data := await reader.read(65_536)) and not is_lost.is_set():
            writer.write(data)
            await writer.drain()
