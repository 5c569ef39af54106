import asyncio
import socket

import pytest
from aiohttp import web

from tests.support.http_server import clean_up
from tests.support.leaks import collect_leaks
from tests.support.tcp_server import TcpServer


def _forget_a_socket() -> None:
    forgotten = [socket.socket()]
    forgotten.append(forgotten)  # a cycle, which only the garbage collector finds


def test_an_open_socket_is_detected_when_the_test_ends() -> None:
    _forget_a_socket()
    [leak] = collect_leaks()
    assert "unclosed <socket.socket" in leak


def test_a_closed_socket_is_not_a_leak() -> None:
    with socket.socket():
        pass
    assert collect_leaks() == []


def test_a_stopped_server_leaves_no_connections_open_whatever_its_clients_do() -> None:
    """Idle connections, connections that were just accepted, and a handler that never ends."""

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


@pytest.mark.parametrize("turns", range(5))
def test_a_stopped_http_server_closes_connections_that_it_has_just_accepted(turns: int) -> None:
    async def play() -> None:
        runner = web.AppRunner(web.Application(), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        callers = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        for _ in range(turns):
            await asyncio.sleep(0)  # the event loop accepts them with a delay
        await clean_up(runner)
        for caller in callers:
            caller.close()

    asyncio.run(play())
    assert collect_leaks() == []
