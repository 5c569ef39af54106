"""Several processes accept connections evenly from a shared socket."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing

import pytest

from payintent.http.listeners import SharedListener
from payintent.runtime.processes.board import Board, ConnectionShare

_CONNECTIONS = 60


class _Accepted(asyncio.Protocol):
    """Counts its own connections."""

    def __init__(self, side: "list[asyncio.BaseTransport]") -> None:
        self._side = side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._side.append(transport)


class _Sides:
    """Listeners of one socket, as in processes, but in a single event loop."""

    def __init__(self, count: int) -> None:
        self.board = Board.create(count + 1)
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=_CONNECTIONS)
        self.socket.setblocking(False)
        self.accepted: list[list[asyncio.BaseTransport]] = [[] for _ in range(count)]
        self.listeners = [
            SharedListener([self.socket.dup()], _CONNECTIONS, ConnectionShare(self.board, slot))
            for slot in range(1, count + 1)
        ]

    def start(self, number: int) -> None:
        side = self.accepted[number]
        self.listeners[number].start(lambda: _Accepted(side), lambda: len(side))

    async def connect(self, stack: AsyncExitStack, count: int) -> None:
        """Open this many connections at once, and wait until each is accepted."""
        expected = sum(map(len, self.accepted)) + count
        for _ in range(count):
            client = socket.socket()
            stack.enter_context(closing(client))
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, self.socket.getsockname())
        while sum(map(len, self.accepted)) < expected:
            await asyncio.sleep(0.001)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as async_exit_stack:
        yield async_exit_stack


def _opened(stack: AsyncExitStack, count: int) -> _Sides:
    sides = _Sides(count)

    async def close() -> None:
        for listener in sides.listeners:
            listener.detach()
            await listener.wait_closed()
        for transport in (item for side in sides.accepted for item in side):
            transport.close()
        sides.socket.close()
        os.close(sides.board.descriptor)
        await asyncio.sleep(0)

    stack.push_async_callback(close)
    return sides


async def test_simultaneous_connections_are_shared_between_processes(stack: AsyncExitStack) -> None:
    sides = _opened(stack, 3)
    for number in range(3):
        sides.start(number)
    await sides.connect(stack, _CONNECTIONS)
    counts = sorted(map(len, sides.accepted))
    assert counts[-1] - counts[0] <= 6


async def test_a_hanging_process_does_not_delay_connections(stack: AsyncExitStack) -> None:
    sides = _opened(stack, 2)
    sides.start(0)
    ConnectionShare(sides.board, 2).publish(0)  # it is registered, but accepts nothing
    await sides.connect(stack, _CONNECTIONS)
    assert len(sides.accepted[0]) == _CONNECTIONS


async def test_a_new_process_gets_connections_until_its_share_is_equal(
    stack: AsyncExitStack,
) -> None:
    sides = _opened(stack, 2)
    sides.start(0)
    await sides.connect(stack, 20)
    sides.start(1)
    await sides.connect(stack, 20)
    assert len(sides.accepted[1]) >= 15


async def test_a_detached_process_accepts_no_connections_and_loses_none(
    stack: AsyncExitStack,
) -> None:
    sides = _opened(stack, 2)
    sides.start(0)
    sides.start(1)
    await sides.connect(stack, 10)
    before = len(sides.accepted[0])
    sides.listeners[0].detach()
    await sides.connect(stack, 30)
    assert len(sides.accepted[0]) == before


async def test_a_closing_process_first_accepts_the_waiting_connections(
    stack: AsyncExitStack,
) -> None:
    sides = _opened(stack, 1)
    sides.start(0)
    clients = [stack.enter_context(closing(socket.socket())) for _ in range(5)]
    for client in clients:
        client.connect(sides.socket.getsockname())  # nothing is accepted: the loop does not run
    sides.listeners[0].close()
    await sides.listeners[0].wait_closed()
    assert len(sides.accepted[0]) == 5
