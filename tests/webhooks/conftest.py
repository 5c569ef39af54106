import asyncio
import socket
from contextlib import ExitStack, closing, contextmanager

import pytest

from tests.support.tcp_server import TcpServer


class Trap:
    """A listener that detects connections, even if the kernel only queues them."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]

    def is_untouched(self) -> bool:
        try:
            self._listener.accept()[0].close()
        except BlockingIOError:
            return True
        return False

    async def catch(self) -> None:
        accepted, _ = await asyncio.get_running_loop().sock_accept(self._listener)
        accepted.close()

    @contextmanager
    def stuffed(self):
        """Fill the connection queue, so that the kernel does not respond to further connections."""
        self._listener.listen(0)
        with ExitStack() as stack:
            for _ in range(3):
                client = stack.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(("127.0.0.1", self.port))
            yield

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def trap():
    with closing(Trap()) as listening:
        yield listening


class Endpoint:
    """A merchant's server on a real socket that responds with given bytes."""

    def __init__(self, answer, tls=None) -> None:
        self._answer = answer
        self._scheme = "https" if tls else "http"
        self._server = TcpServer(self._serve, tls)
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = 0

    async def __aenter__(self):
        await self._server.start()
        return self

    async def __aexit__(self, *_):
        await self._server.stop()

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/hook"

    async def _serve(self, reader, writer):
        self.connections += 1
        try:
            while True:
                self.requests.append(await _read_request(reader))
                await self._answer(writer) if callable(self._answer) else writer.write(self._answer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client disconnected
        finally:
            writer.transport.abort()


async def _read_request(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *fields = head.removesuffix("\r\n\r\n").split("\r\n")
    headers = {name.lower(): value.strip() for name, value in (f.split(":", 1) for f in fields)}
    return line, headers, await reader.readexactly(int(headers.get("content-length", "0")))


@pytest.fixture
def endpoint():
    return Endpoint
