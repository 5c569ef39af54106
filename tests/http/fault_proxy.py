"""A connection to the database that can be cut completely, or just when a response arrives."""

import asyncio
import contextlib
from urllib.parse import urlsplit, urlunsplit

from tests.support.tcp_server import TcpServer


class FaultProxy:
    """Forwards TCP. `cut` closes every connection and accepts no new ones; `mend` undoes it."""

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        assert target.hostname
        self._url, self._host, self._port = target, target.hostname, target.port or 5432
        self._server = TcpServer(self._serve)
        #: The answer to a request that holds these bytes is lost, and its connection with it.
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
        losing = asyncio.Event()
        both = [
            asyncio.create_task(self._ask(reader, to_database, losing)),
            asyncio.create_task(_answer(from_database, writer, losing)),
        ]
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for item in both:
            item.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        for end in (writer, to_database):
            end.transport.abort()

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                if self.lose_answer_to is not None and self.lose_answer_to in data:
                    self.lose_answer_to = None
                    losing.set()
                writer.write(data)
                await writer.drain()


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event
) -> None:
    with contextlib.suppress(ConnectionError):
        while (data := await reader.read(65_536)) and not losing.is_set():
            writer.write(data)
            await writer.drain()
