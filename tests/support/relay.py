"""A server that terminates TLS and forwards every connection, like a proxy."""

import asyncio
import ssl
from contextlib import suppress

from tests.support.tcp_server import TcpServer

_READ_MAX = 64 * 1024


class TlsRelay(TcpServer):
    """Terminates TLS, and forwards each connection to a local port."""

    def __init__(self, tls: ssl.SSLContext, target_port: int) -> None:
        super().__init__(self._relay, tls)
        self._target_port = target_port

    @property
    def place(self) -> str:
        """The listen address, as host and port."""
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
        finally:  # even if the server is stopped in the meantime
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
