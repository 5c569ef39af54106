"""A server that ends TLS and hands every connection on, as a proxy before a process does."""

import asyncio
import ssl
from contextlib import suppress

from tests.support.tcp_server import TcpServer

_READ_MAX = 64 * 1024


class TlsRelay(TcpServer):
    """Ends TLS; hands the bytes of each connection to a port of this machine."""

    def __init__(self, tls: ssl.SSLContext, target_port: int) -> None:
        super().__init__(self._relay, tls)
        self._target_port = target_port

    @property
    def place(self) -> str:
        """Where it listens, as host and port."""
        return f"127.0.0.1:{self.port}"

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target_port)
        except ConnectionError:
            writer.transport.abort()
            return
        pumps = [
            asyncio.ensure_future(pump) for pump in (_pump(reader, back), _pump(there, writer))
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:  # also where the server is stopped meanwhile
            for end in (back, writer):
                end.transport.abort()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, ssl.SSLError):
        while data := await reader.read(_READ_MAX):
            writer.write(data)
            await writer.drain()
