"""The drills' client keeps connections for the configured time."""

import asyncio
import math
from collections.abc import AsyncIterator

import pytest

from drills.client import Client, Target

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class _Server:
    """Responds to every request, and counts the connections."""

    def __init__(self) -> None:
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(_ANSWER)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            writer.close()


@pytest.fixture
async def counted() -> AsyncIterator[tuple[_Server, Target]]:
    server = _Server()
    async with await asyncio.start_server(server.serve, "127.0.0.1") as listening:
        yield server, Target("127.0.0.1", listening.sockets[0].getsockname()[1])


@pytest.mark.parametrize(("idle_max_s", "connections"), [(math.inf, 1), (0.0, 3)])
async def test_a_connection_is_reused_unless_keep_alive_is_disabled(
    counted: tuple[_Server, Target], idle_max_s: float, connections: int
) -> None:
    server, target = counted
    client = Client(target, 30.0, idle_max_s)
    replies = [await client.call("GET", "/", {}) for _ in range(3)]
    await client.close()
    assert [reply.status for reply in replies] == [200, 200, 200]
    assert server.connections == connections


async def test_a_connection_that_was_idle_too_long_is_not_reused(
    counted: tuple[_Server, Target],
) -> None:
    server, target = counted
    client = Client(target, 30.0, 2.0)
    await client.call("GET", "/", {})
    client._free[0].idle_since = -math.inf
    await client.call("GET", "/", {})
    await client.close()
    assert server.connections == 2
