"""Run the drill in `docs/operate/runbook.md` for a full database disk.

The database is on a small separate disk, which only root can mount.
"""

import asyncio
import errno
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest
from structlog.testing import capture_logs

from payintent.db import migrations_runner
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from payintent.worker import run_loops
from payintent_sandbox.postgres import Postgres
from tests.support.fakes import FakeGateway, captured
from tests.support.timeouts import wait_until
from tests.support.world import Api, World, make_world

pytestmark = [pytest.mark.e2e, pytest.mark.full]

_DISK_MB = 120  # a new cluster, its first WAL segments, and some free space
_FULL = "the database has no space left on its disk"
_LOG_CHARS = 6_000
_CREATES_MAX = 3_000  # of 4 kB each: far more than fit on the disk


class SmallDisk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:

        with self._ballast.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                while _write(file.fileno(), size):
                    pass

    def make_room(self) -> None:
        self._ballast.unlink()


def _write(file: int, size: int) -> bool:
    try:
        return os.write(file, bytes(size)) == size
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    folder = Path(tempfile.mkdtemp(prefix="payintent-disk-"))
    size = f"size={_DISK_MB}m,mode=0711"
    command = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    if mounted:
        yield SmallDisk(folder)
        subprocess.run(["umount", str(folder)], check=True)
    folder.rmdir()
    if not mounted:
        pytest.skip("a small disk cannot be mounted, which requires root and CAP_SYS_ADMIN")


@pytest.fixture
def server(disk: SmallDisk) -> Iterator[Postgres]:
    server = Postgres(disk.folder / "server" / "data", durable=False)
    server.start()
    yield server
    # If the test fails, pytest shows the server's log.
    print((disk.folder / "server" / "postgres.log").read_text(errors="replace")[-_LOG_CHARS:])
    server.stop()


@pytest.fixture
async def settings(settings: Settings, server: Postgres) -> Settings:
    await migrations_runner.migrate(server.url())
    return settings.model_copy(update={"database_url": server.url()})


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    service = await open_service(settings, {"fake": gateway})
    yield service
    await service.close()


@pytest.fixture
async def world(service: Service, gateway: FakeGateway) -> World:
    return await make_world(service, gateway)


@asynccontextmanager
async def working(service: Service) -> AsyncIterator[None]:
    """Run a worker while the block runs."""
    stop = asyncio.Event()
    loops = asyncio.create_task(run_loops(service, stop))
    try:
        yield
    finally:
        stop.set()
        await loops


async def create_until_rejected(api: Api) -> list[str]:
    """Create payments until one is rejected; return the ids of the accepted payments."""
    accepted: list[str] = []
    for _ in range(_CREATES_MAX):
        answer = await api.create(metadata={"note": "x" * 4_000})
        if answer.status != 201:
            assert (answer.status, answer.json["code"]) == (503, "SERVICE_UNAVAILABLE")
            assert 1 <= int(answer.headers["Retry-After"]) <= 5
            return accepted
        accepted.append(answer.json["id"])
    pytest.fail("the disk is not full after the maximum number of payments")


async def test_a_full_disk_rejects_new_payments_and_loses_no_accepted_payment(
    api: Api, disk: SmallDisk, server: Postgres
) -> None:
    world = api.world
    key = str(uuid4())
    first = (await api.create(key)).json["id"]
    paying = await world.create()
    session = (await world.select(paying)).session
    with capture_logs() as lines:
        async with working(world.service):
            disk.fill()
            accepted = [first, *await create_until_rejected(api)]
            assert (await api.get(first)).status == 200, "reads still work"
            assert (await api.send("GET", "/readyz")).status == 200
            assert (await api.create(key)).json["id"] == first, "an idempotent replay works"
            await _stop_database_without_space(server)
            assert (await api.create()).status == 503
            disk.make_room()
            assert server.start(urlsplit(server.url()).port or 0) == server.url()
            await wait_until(lambda: _can_create(api), "payments are created again")
            await world.report(paying, session.id, captured(session.quote.total_minor))
            assert await world.status(paying) == "PAID"
            for payment_id in accepted:
                assert (await api.get(payment_id)).status == 200
    assert _FULL in {line["why"] for line in lines if line["event"] == "storage_down"}
    assert {"bug", "step_failed"}.isdisjoint(line["event"] for line in lines)


async def _can_create(api: Api) -> bool:
    return (await api.create()).status == 201


async def _stop_database_without_space(server: Postgres) -> None:
    """Make the database allocate a new WAL segment, so that it stops and cannot recover."""

    async def has_stopped() -> bool:
        try:
            connection = await asyncpg.connect(server.url())
        except (OSError, asyncpg.PostgresError):
            return not server.alive()
        try:
            await connection.execute("SELECT pg_switch_wal()")
            await connection.execute("SELECT pg_logical_emit_message(false, 'drill', 'x')")
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            pass
        finally:
            connection.terminate()
        return not server.alive()

    await wait_until(has_stopped, "the database has stopped")
