"""Runs installations with one merchant each, and HAProxy in front of them."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from bench.installation import free_ports
from drills.cells.database_server import DatabaseServer
from drills.client import Target
from drills.judge import StoredPayment
from drills.processes import Program, api_program, payintent, plain_environment
from drills.receiver import Receiver
from payintent.core import ids
from payintent.merchants.operations import SetCallbackUrl
from payintent.operators.operation import Actor
from payintent_sandbox.chains.dev_chains import DevChains
from payintent_sandbox.installation import (
    SandboxInstallation,
    open_installed_service,
    prepare_installation,
)
from tests.support.haproxy import InstallationProxy

_COMMAND_S = 120.0
_ACTOR = Actor("drill", "drill setup")
#: The marks of the installations. The last installation is added during the drill.
MARKS = ("a1", "b1", "c1")


class CommandError(Exception):
    """A `payintent` command failed. The message contains its output."""


@dataclass(frozen=True, slots=True)
class Installation:
    """A running installation, and its merchant's API key."""

    mark: str
    api_key: str
    port: int
    database: DatabaseServer
    api: Program
    receiver: Receiver

    def signal_api(self, number: int) -> None:
        """Send a signal to the API's process group."""
        if self.api.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.api.process.pid, number)

    async def stored(self) -> tuple[list[StoredPayment], list[str]]:
        """Return the stored payments, and the payment ID of each stored event."""
        connection = await asyncpg.connect(self.database.url, timeout=10)
        try:
            payments = await connection.fetch("SELECT id, payer_uid, status FROM payment")
            events = await connection.fetch("SELECT payment_id FROM event")
        finally:
            await connection.close()
        stored = [
            StoredPayment(ids.format_id(ids.PAYMENT, row["id"]), row["payer_uid"], row["status"])
            for row in payments
        ]
        return stored, [ids.format_id(ids.PAYMENT, row["payment_id"]) for row in events]


@dataclass(frozen=True, slots=True)
class Scene:
    """The installations in the order of `MARKS`, and the proxy in front of them."""

    proxy: InstallationProxy
    installations: Sequence[Installation]

    @property
    def target(self) -> Target:
        """The proxy's address, which all merchants use."""
        return Target("127.0.0.1", self.proxy.port)

    async def route(self, count: int) -> None:
        """Reload the proxy, so that it routes to the first `count` installations."""
        self.proxy.configure(_routes(self.installations[:count]))
        await self.proxy.reload()

    async def stored(self) -> tuple[list[StoredPayment], list[str]]:
        """Return all stored payments, and the payment ID of each stored event."""
        payments: list[StoredPayment] = []
        events: list[str] = []
        for installation in self.installations:
            own, ended = await installation.stored()
            payments += own
            events += ended
        return payments, events

    def told(self) -> set[str]:
        """Return the IDs of the payments for which a webhook arrived."""
        return {
            payment for installation in self.installations for payment in installation.receiver.told
        }


@asynccontextmanager
async def running(folder: Path, marks: Sequence[str] = MARKS) -> AsyncGenerator[Scene]:
    """Run an installation for each mark, and a proxy that routes to the first two."""
    async with AsyncExitStack() as stack:
        installations = [
            await stack.enter_async_context(_installation(folder / mark, mark)) for mark in marks
        ]
        proxy = InstallationProxy(_make_folder(folder / "proxy"), _routes(installations[:2]))
        yield Scene(await stack.enter_async_context(proxy), installations)


def _make_folder(folder: Path) -> Path:
    folder.mkdir()
    folder.chmod(0o711)  # so that the database's user can access the data
    return folder


def _routes(installations: Sequence[Installation]) -> dict[str, list[int]]:
    return {installation.mark: [installation.port] for installation in installations}


@asynccontextmanager
async def _installation(folder: Path, mark: str) -> AsyncGenerator[Installation]:
    """Run PostgreSQL, an API, a worker and the merchant's webhook endpoint."""
    _make_folder(folder)
    database = DatabaseServer(folder)
    programs: list[Program] = []
    receiver: Receiver | None = None
    try:
        await database.start()
        world = await _install(folder, database.url)
        environment = world.service_environment() | {"PAYINTENT_KEY_MARK": mark}
        receiver = Receiver(world.ports.shop)
        await receiver.start()
        api = api_program(1, world.ports.api, environment, folder)
        programs = [
            api,
            Program("worker", payintent("worker", "--processes", "1"), environment, folder),
        ]
        for program in programs:
            await program.start()
        merchant_id = str(world.kept["merchants"][0]["id"])
        issued = json.loads(await _command(environment, "key", "issue", merchant_id, "--json"))
        yield Installation(mark, issued["api_key"], world.ports.api, database, api, receiver)
    finally:
        for program in reversed(programs):
            if program.process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(program.process.pid, signal.SIGCONT)
            await program.stop()
        if receiver is not None:
            await receiver.stop()
        await database.stop()


async def _install(folder: Path, url: str) -> SandboxInstallation:
    """Set up an installation whose merchant has a callback URL."""
    own = _make_folder(folder / "sandbox")
    world = await prepare_installation(own, free_ports(), url, DevChains(own, (0, 0, 0)))
    service = await open_installed_service(world)
    try:
        set_url = SetCallbackUrl(
            merchant_id=world.kept["merchants"][0]["id"],
            callback_url=f"{world.shop_url}/webhooks",
        )
        await service.run_operation(set_url, _ACTOR)
    finally:
        await service.close()
    return world


async def _command(environment: Mapping[str, str], *words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *payintent(*words),
        env=plain_environment() | dict(environment),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(_COMMAND_S):
        printed, problem = await process.communicate()
    if process.returncode:
        raise CommandError(f"payintent {' '.join(words)}\n{problem.decode()}")
    return printed.decode()
