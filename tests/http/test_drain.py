"""The shutdown of a process: accepted connections and requests get a response first."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import cast
from uuid import uuid4

import asyncpg
import pytest
import uvloop

from payintent.app import Application
from payintent.http.listeners import stop_listening
from payintent.http.server import DrainingServer, make_server
from payintent.runtime.settings import Settings
from tests.http.wire import Wire
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.serving import app_of
from tests.support.world import World, free_port

_CLIENTS = 40


@dataclass
class Running:
    """A server in this event loop that shuts down like a process."""

    server: DrainingServer
    app: Application
    base: str
    world: World

    def drain(self) -> None:
        """Do the first step of SIGTERM."""
        self.app.on_drain()
        self.server.drain()

    def request(self, path: str, body: object = None) -> bytes:
        data = b"" if body is None else json.dumps(body).encode()
        return (
            f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: pay\r\n"
            f"Authorization: Bearer {self.world.api_key}\r\nIdempotency-Key: {uuid4()}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        ).encode() + data

    def create(self) -> bytes:
        body = {"currency": "THB", "amount": "1590.00", "payer_uid": "buyer-1"}
        return self.request("/v1/payments", body)


@pytest.fixture
async def running(settings: Settings, world: World) -> AsyncIterator[Running]:
    port = free_port()
    app = app_of(settings, world.service)
    server = make_server(app, settings, "127.0.0.1", port)
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup()
    await server.on_tick(0)
    yield Running(server, app, f"http://127.0.0.1:{port}", world)
    if server.servers[0].is_serving():
        await server.shutdown()


async def test_a_process_that_drains_is_not_ready_and_answers_everything_else(
    running: Running,
) -> None:
    async with Wire(running.base) as kept:
        await kept.send(running.request("/readyz"))
        before = await kept.answer(PATIENCE_S)
        assert before is not None
        assert (before.status, before.headers.get("connection")) == (200, None)
        running.drain()
        await kept.send(running.create())  # over a connection from before
        answer = await kept.answer(PATIENCE_S)
        assert answer is not None
        assert (answer.status, answer.headers["connection"]) == (201, "close")
        assert await kept.answer(PATIENCE_S) is None
    for request, status in ((running.create(), 201), (running.request("/readyz"), 503)):
        async with Wire(running.base) as new:
            await new.send(request)
            answer = await new.answer(PATIENCE_S)
            assert answer is not None
            assert (answer.status, answer.headers["connection"]) == (status, "close")


async def test_a_drain_closes_no_idle_connection_into_which_a_request_may_be_on_its_way(
    running: Running,
) -> None:
    async with Wire(running.base) as used, Wire(running.base) as unused:
        await used.send(running.request("/healthz"))
        assert await used.answer(PATIENCE_S) is not None
        running.drain()
        for wire in (used, unused):
            await wire.settle()
            assert not wire.is_lost()
            await wire.send(running.request("/healthz"))
            answer = await wire.answer(PATIENCE_S)
            assert answer is not None
            assert answer.status == 200


async def test_an_answer_under_way_says_that_it_is_the_connections_last(
    running: Running, settings: Settings
) -> None:
    locking = await asyncpg.connect(settings.database_url)
    try:
        async with Wire(running.base) as wire:
            async with locking.transaction():
                await locking.execute("LOCK TABLE payment IN ACCESS EXCLUSIVE MODE")
                await wire.send(running.create())
                await wait_until(
                    lambda: running.server.server_state.tasks, "the request is under way"
                )
                running.drain()
            answer = await wire.answer(PATIENCE_S)
    finally:
        await locking.close()
    assert answer is not None
    assert (answer.status, answer.headers["connection"]) == (201, "close")


async def test_what_was_connected_at_the_very_last_is_answered_before_the_process_ends(
    running: Running,
) -> None:
    async with Wire(running.base) as last:
        running.drain()
        ending = asyncio.create_task(running.server.shutdown())
        await wait_until(lambda: not running.server.servers[0].is_serving(), "it listens no more")
        await last.send(running.create())
        answer = await last.answer(PATIENCE_S)
        assert answer is not None
        assert answer.status == 201
        await asyncio.wait_for(ending, PATIENCE_S)


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)
        self._transport.close()


def _connected(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    client.sendall(b"x")
    return client


def test_a_socket_is_closed_without_a_reset_of_what_had_not_been_accepted() -> None:
    """All clients connect and send while the loop is busy, and no request is lost."""

    async def run() -> list[bytes]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(_Echo, "127.0.0.1", 0, backlog=_CLIENTS)
        port = server.sockets[0].getsockname()[1]
        clients = [_connected(port) for _ in range(_CLIENTS)]  # the loop accepts none meanwhile
        await stop_listening([server])
        answers = await asyncio.gather(
            *(asyncio.to_thread(client.recv, 1) for client in clients), return_exceptions=True
        )
        for client in clients:
            client.close()
        await server.wait_closed()
        return [answer if isinstance(answer, bytes) else b"" for answer in answers]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(run()) == [b"x"] * _CLIENTS


def test_who_connects_in_the_moment_of_the_end_is_refused_and_not_reset() -> None:
    async def run() -> str:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(_Echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        closing = loop.create_task(stop_listening([server]))
        await asyncio.sleep(0)  # new connections are held off, and the socket is still open
        assert server.is_serving()
        try:
            (await asyncio.to_thread(_connected, port)).close()
        except ConnectionRefusedError:
            return "refused"
        finally:
            await closing
            await server.wait_closed()
        return "connected"

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(run()) == "refused"
