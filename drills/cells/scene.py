"""A service with two cells on two servers: two APIs, a worker, and a merchant in each cell."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from bench.installation import free_ports
from drills.cells.pooler import Pooler
from drills.cells.servers import CellServer
from drills.client import Target
from drills.judge import StoredPayment
from drills.processes import Program, api_program, payintent, plain_environment
from drills.receiver import Receiver
from payintent.domain import ids
from payintent.operations.base import Actor
from payintent.operations.merchants import SetCallbackUrl
from payintent.storage import migrations_runner
from payintent_sandbox.chains.dev_chains import DevChains
from payintent_sandbox.installation import (
    SandboxInstallation,
    open_installed_service,
    prepare_installation,
)
from tests.support.world import free_port

_COMMAND_S = 120.0
_COPIED_S = 5.0  # until cells and processes know it
_LOOK_S = 0.1
_ACTOR = Actor("drill", "the drill's own")
#: The cell of each of the sandbox's merchants, in their order.
CELLS = (0, 1)


class CommandError(Exception):
    """A command of the service failed; the message is what it printed."""


@dataclass(frozen=True, slots=True)
class Shop:
    """A merchant with its key."""

    merchant_id: int
    api_key: str


@dataclass(slots=True)
class Route:
    """The way to cell 1 through a pooler, and a server that the cell can move to."""

    pooler: Pooler
    spare: CellServer


@dataclass(frozen=True, slots=True)
class Scene:
    """A service that runs, its servers by cell, and the merchants in the order of their cells."""

    target: Target
    shops: Sequence[Shop]
    servers: dict[int, CellServer]
    receiver: Receiver
    environment: Mapping[str, str] = field(repr=False)
    route: Route | None = None

    async def stored(self) -> tuple[list[StoredPayment], list[str]]:
        """Read all payments of all cells, and the payment of each event."""
        payments: list[StoredPayment] = []
        events: list[str] = []
        for server in self.servers.values():
            found, ended = await _stored(server.url)
            payments += found
            events += ended
        return payments, events

    async def command(self, *words: str, **more: str) -> str:
        """Run a command of the service; gives what it printed (`CommandError`)."""
        return await _command({**self.environment, **more}, *words)


@asynccontextmanager
async def running(folder: Path, *, pooled: bool = False) -> AsyncGenerator[Scene]:
    """Start two servers, make the second one a cell with a merchant, and run the service.

    With `pooled` the cell is behind PgBouncer, and a third server is there to move it to.
    """
    servers = {number: CellServer(number, folder) for number in CELLS}
    programs: list[Program] = []
    receiver: Receiver | None = None
    route: Route | None = None
    try:
        for server in servers.values():
            await server.start()
        world = await _install(folder, servers[0].url)
        await migrations_runner.migrate(servers[1].url)
        if pooled:
            route = _make_route(folder, servers[1])
            programs.append(route.pooler.program)
            await route.pooler.program.start()
            await _answering(route.pooler.url)
        environment = _environment(world, servers[1], route)
        receiver = Receiver(world.ports.shop)
        await receiver.start()
        await _command(environment, "cell", "add", "1")
        processes = _programs(world, environment, folder)
        programs += processes
        for program in processes:  # each opens the cells that were added before
            await program.start()
        shops = [Shop(kept["id"], kept["api_key"]) for kept in world.kept["merchants"]]
        await _command(environment, "merchant", "move", str(shops[1].merchant_id), "--to", "1")
        await _let_a_day_go_by(servers[0].url)
        target = Target("127.0.0.1", world.ports.api)
        yield Scene(target, shops, servers, receiver, environment, route)
    finally:
        for program in reversed(programs):
            await program.stop()
        if receiver is not None:
            await receiver.stop()
        for server in [*servers.values(), *([route.spare] if route else [])]:
            await server.stop()


async def _let_a_day_go_by(url: str) -> None:
    """Let the move be so long ago that keys of before it count no more."""
    connection = await asyncpg.connect(url, timeout=10)
    try:
        await connection.execute(
            """
            UPDATE merchant_cell
            SET since = since - interval '3 days', until = until - interval '2 days'
            WHERE until IS NOT NULL
            """
        )
    finally:
        await connection.close()
    await asyncio.sleep(_COPIED_S)


async def _install(folder: Path, url: str) -> SandboxInstallation:
    """Set up control, with a callback URL for both merchants."""
    own = folder / "sandbox"
    own.mkdir()
    world = await prepare_installation(own, free_ports(), url, DevChains(own, (0, 0, 0)))
    service = await open_installed_service(world)
    try:
        for merchant in world.kept["merchants"]:
            told = SetCallbackUrl(
                merchant_id=merchant["id"], callback_url=f"{world.shop_url}/webhooks"
            )
            await service.run_operation(told, _ACTOR)
    finally:
        await service.close()
    return world


def _make_route(folder: Path, server: CellServer) -> Route:
    """Put a pooler before a cell's server, and a server beside it with the same password."""
    password = urlsplit(server.url).password or ""
    return Route(
        Pooler(folder, free_port(), server.url),
        CellServer(1, folder, "spare", password),
    )


async def _answering(url: str) -> None:
    """Wait until a pooler leads to its database."""
    async with asyncio.timeout(_COMMAND_S):
        while True:
            try:
                connection = await asyncpg.connect(url, statement_cache_size=0)
            except (OSError, asyncpg.PostgresError):
                await asyncio.sleep(_LOOK_S)
            else:
                await connection.close()
                return


def _environment(
    world: SandboxInstallation, server: CellServer, route: Route | None
) -> Mapping[str, str]:
    address: dict[str, object] = {"url": server.url}
    if route is not None:
        # Past the pooler, whichever of both takes writes.
        both = f"127.0.0.1:{server.port},127.0.0.1:{route.spare.port}"
        direct = server.url.replace(f"127.0.0.1:{server.port}", both)
        address = {"url": route.pooler.url, "direct_url": direct, "pooled": True}
    return world.service_environment() | {"PAYINTENT_CELLS": json.dumps({"1": address})}


def _programs(
    world: SandboxInstallation, environment: Mapping[str, str], folder: Path
) -> list[Program]:
    worker = Program("worker", payintent("worker", "--processes", "1"), environment, folder)
    return [api_program(1, world.ports.api, environment, folder), worker]


async def _command(environment: Mapping[str, str], *words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "payintent", *words,
        env=plain_environment() | dict(environment),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(_COMMAND_S):
        printed, _ = await process.communicate()
    if process.returncode:
        raise CommandError(f"payintent {' '.join(words)}\n{printed.decode()}")
    return printed.decode()


async def _stored(url: str) -> tuple[list[StoredPayment], list[str]]:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        payments = await connection.fetch("SELECT id, payer_uid, status FROM payment")
        events = await connection.fetch("SELECT payment_id FROM event")
    finally:
        await connection.close()
    found = [
        StoredPayment(ids.format_id(ids.PAYMENT, row["id"]), row["payer_uid"], row["status"])
        for row in payments
    ]
    return found, [ids.format_id(ids.PAYMENT, row["payment_id"]) for row in events]
