"""Runs the service: two APIs behind nginx, a worker, HAProxy and PgBouncer."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from bench.installation import free_ports
from drills.client import Target
from drills.ha.network import address
from drills.ha.programs import LEADER_PORT, POOL_PORT, USER, Passwords, haproxy, pgbouncer
from drills.judge import StoredPayment
from drills.processes import NotReadyError, Program, api_program, payintent
from drills.receiver import Receiver
from payintent.core import ids
from payintent_sandbox.chains.dev_chains import DevChains
from payintent_sandbox.installation import SandboxInstallation, prepare_installation
from tests.support.ports import free_port
from tests.support.proxy import NAME, run_proxy

_APIS = 2
_LEADS_TRIES, _LEADS_LOOK_S = 30, 2.0
#: The service does not set these parameters behind a pooler. See docs/operate/configure.md.
_ROLE = """
CREATE ROLE payintent LOGIN PASSWORD '{password}';
ALTER ROLE payintent SET lock_timeout = '2s';
ALTER ROLE payintent SET statement_timeout = '5s';
ALTER ROLE payintent SET idle_in_transaction_session_timeout = '10s';
ALTER ROLE payintent SET jit = off;
"""


@dataclass(frozen=True, slots=True)
class Scene:
    """A running service, with the addresses of its API and its database."""

    target: Target
    api_key: str
    merchant_id: int
    front: dict[str, Program]
    receiver: Receiver
    url: str

    async def stored(self) -> tuple[list[StoredPayment], list[str]]:
        """Return the merchant's payments, and the payment ID of each event."""
        connection = await asyncpg.connect(self.url, timeout=10)
        try:
            payments = await connection.fetch(
                "SELECT id, payer_uid, status FROM payment WHERE merchant_id = $1",
                self.merchant_id,
            )
            events = await connection.fetch(
                "SELECT payment_id FROM event WHERE merchant_id = $1", self.merchant_id
            )
        finally:
            await connection.close()
        stored_payments = [
            StoredPayment(ids.format_id(ids.PAYMENT, row["id"]), row["payer_uid"], row["status"])
            for row in payments
        ]
        return stored_payments, [ids.format_id(ids.PAYMENT, row["payment_id"]) for row in events]


@asynccontextmanager
async def running(folder: Path, leader: str, passwords: Passwords) -> AsyncGenerator[Scene]:
    """Create the database on the leader, and run the service and its proxies."""
    await _make_database(leader, passwords)
    front = {"haproxy": haproxy(folder), "pgbouncer": pgbouncer(folder, passwords)}
    started: list[Program] = []
    receiver: Receiver | None = None
    try:
        for program in front.values():
            await program.start()
            started.append(program)
        await _leads(_url(passwords, LEADER_PORT))
        world = await _install(folder, passwords)
        receiver = Receiver(world.ports.shop)
        await receiver.start()
        ports = [free_port() for _ in range(_APIS)]
        front |= _service(world, folder, ports, _url(passwords, POOL_PORT))
        for name in (*(f"api-{number}" for number in range(1, _APIS + 1)), "worker"):
            await front[name].start()
            started.append(front[name])
        async with run_proxy(*ports, folder=folder) as (base, trusting):
            target = Target("127.0.0.1", int(base.rpartition(":")[2]), trusting, NAME)
            merchant = world.kept["merchants"][0]
            url = _url(passwords, LEADER_PORT)
            yield Scene(target, merchant["api_key"], merchant["id"], front, receiver, url)
    finally:
        if receiver is not None:
            await receiver.stop()
        for program in reversed(started):
            await program.kill()


async def _make_database(leader: str, passwords: Passwords) -> None:
    url = f"postgresql://postgres:{passwords.superuser}@{address(leader)}:5432/postgres"
    connection = await asyncpg.connect(f"{url}?sslmode=disable", timeout=30)
    try:
        await connection.execute(_ROLE.format(password=passwords.service))
        await connection.execute(f"CREATE DATABASE {USER} OWNER {USER}")
    finally:
        await connection.close()


async def _leads(url: str) -> None:
    """Wait until HAProxy has checked all databases and routes to the leader."""
    for _ in range(_LEADS_TRIES):
        await asyncio.sleep(_LEADS_LOOK_S)
        with suppress(OSError, asyncpg.PostgresError):
            connection = await asyncpg.connect(url, timeout=2)
            try:
                if await connection.fetchval("SHOW transaction_read_only") == "off":
                    return
            finally:
                await connection.close()
    raise NotReadyError("HAProxy does not route to a database that accepts writes")


async def _install(folder: Path, passwords: Passwords) -> SandboxInstallation:
    own = folder / "sandbox"
    own.mkdir()
    chains = DevChains(own, (0, 0, 0))
    return await prepare_installation(own, free_ports(), _url(passwords, LEADER_PORT), chains)


def _service(
    world: SandboxInstallation, folder: Path, ports: Sequence[int], pooled: str
) -> dict[str, Program]:
    environment = world.service_environment() | {
        "DATABASE_URL": pooled,
        "DATABASE_DIRECT_URL": world.database_url,
        "PAYINTENT_DATABASE_POOLED": "true",
    }
    apis = {
        f"api-{number}": api_program(number, port, environment, folder)
        for number, port in enumerate(ports, 1)
    }
    return apis | {
        "worker": Program("worker", payintent("worker", "--processes", "1"), environment, folder)
    }


def _url(passwords: Passwords, port: int) -> str:
    return f"postgresql://{USER}:{passwords.service}@127.0.0.1:{port}/{USER}?sslmode=disable"
