"""A process that shuts down first responds to accepted connections and requests."""

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
from tests.support.ports import free_port
from tests.support.running_service import app_of
from tests.support.timeouts import PATIENCE_S, wait_until
from tests.support.world import World

_CLIENTS = 40


@dataclass
class DrainableServer:
    """A server in this event loop that shuts down like a process."""

    server: DrainingServer
    app: Application
    base: str
    world: World

    def drain(self) -> None:
        """Begin a shutdown, as a process does on SIGTERM."""
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
async def process(settings: Settings, world: World) -> AsyncIterator[DrainableServer]:
    port = free_port()
    app = app_of(settings, world.service)
    server = make_server(app, settings, "127.0.0.1", port)
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup()
    await server.on_tick(0)
    yield DrainableServer(server, app, f"http://127.0.0.1:{port}", world)
    if server.servers[0].is_serving():
        await server.shutdown()


async def test_a_draining_process_is_not_ready_but_serves_all_other_requests(
    process: DrainableServer,
) -> None:
    async with Wire(process.base) as wire:
        await wire.send(process.request("/readyz"))
        before = await wire.answer(PATIENCE_S)
        assert before is not None
        assert (before.status, before.headers.get("connection")) == (200, None)
        process.drain()
        await wire.send(process.create())  # over the existing connection
        answer = await wire.answer(PATIENCE_S)
        assert answer is not None
        assert (answer.status, answer.headers["connection"]) == (201, "close")
        assert await wire.answer(PATIENCE_S) is None
    for request, status in ((process.create(), 201), (process.request("/readyz"), 503)):
        async with Wire(process.base) as new_wire:
            await new_wire.send(request)
            answer = await new_wire.answer(PATIENCE_S)
            assert answer is not None
            assert (answer.status, answer.headers["connection"]) == (status, "close")


async def test_a_drain_does_not_close_idle_connections(
    process: DrainableServer,
) -> None:
    async with Wire(process.base) as used, Wire(process.base) as unused:
        await used.send(process.request("/healthz"))
        assert await used.answer(PATIENCE_S) is not None
        process.drain()
        for wire in (used, unused):
            await wire.settle()
            assert not wire.is_lost()
            await wire.send(process.request("/healthz"))
            answer = await wire.answer(PATIENCE_S)
            assert answer is not None
            assert answer.status == 200


async def test_a_connection_closes_after_its_pending_response_during_a_drain(
    process: DrainableServer, settings: Settings
) -> None:
    connection = await asyncpg.connect(settings.database_url)
    try:
        async with Wire(process.base) as wire:
            async with connection.transaction():
                await connection.execute("LOCK TABLE payment IN ACCESS EXCLUSIVE MODE")
                await wire.send(process.create())
                await wait_until(
                    lambda: process.server.server_state.tasks, "the request is in progress"
                )
                process.drain()
            answer = await wire.answer(PATIENCE_S)
    finally:
        await connection.close()
    assert answer is not None
    assert (answer.status, answer.headers["connection"]) == (201, "close")


async def test_the_last_connection_gets_its_response_before_the_process_exits(
    process: DrainableServer,
) -> None:
    async with Wire(process.base) as wire:
        process.drain()
        shutdown = asyncio.create_task(process.server.shutdown())
        await wait_until(
            lambda: not process.server.servers[0].is_serving(), "the listener is closed"
        )
        await wire.send(process.create())
        answer = await wire.answer(PATIENCE_S)
        assert answer is not None
        assert answer.status == 201
        await asyncio.wait_for(shutdown, PATIENCE_S)


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)
        self._transport.close()


def _connect(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    client.sendall(b"x")
    return client


def test_closing_a_socket_does_not_reset_connections_that_await_acceptance() -> None:
    """All clients connect and send while the loop is busy. No request is lost."""

    async def run() -> list[bytes]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(_Echo, "127.0.0.1", 0, backlog=_CLIENTS)
        port = server.sockets[0].getsockname()[1]
        clients = [_connect(port) for _ in range(_CLIENTS)]  # the loop is busy and does not accept
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


def test_a_client_that_connects_while_the_socket_closes_is_refused_not_reset() -> None:
    async def run() -> str:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(_Echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        closing = loop.create_task(stop_listening([server]))
        await asyncio.sleep(0)  # new connections are blocked, but the socket is still open
        assert server.is_serving()
        try:
            (await asyncio.to_thread(_connect, port)).close()
        except ConnectionRefusedError:
            return "refused"
        finally:
            await closing
            await server.wait_closed()
        return "connected"

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(run()) == "refused"
