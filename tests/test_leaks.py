import asyncio
import socket

from tests.support.leaks import collect_leaks
from tests.support.tcp_server import TcpServer


def _forget_a_socket() -> None:
    forgotten = [socket.socket()]
    forgotten.append(forgotten)  # a cycle: only a collection finds it


def test_a_socket_that_was_left_open_is_found_when_the_test_ends() -> None:
    _forget_a_socket()
    [leak] = collect_leaks()
    assert "unclosed <socket.socket" in leak


def test_what_was_closed_is_no_leak() -> None:
    with socket.socket():
        pass
    assert collect_leaks() == []


def test_a_stopped_server_leaves_nothing_open_whatever_its_callers_do() -> None:
    """Connections that say nothing, that were just accepted, and whose handler never ends."""

    async def handle(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async def play() -> None:
        async with TcpServer(handle) as server:
            callers = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(5)]
        for _, writer in callers:
            writer.transport.abort()
        await asyncio.sleep(0)

    asyncio.run(play())
    assert collect_leaks() == []
