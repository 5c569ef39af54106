"""Test point-in-time recovery with the commands in docs/operate/backup.md."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from payintent.db import migrations_runner
from payintent.runtime.settings import Settings
from payintent.service import open_service
from payintent_sandbox.postgres import Postgres
from tests.docs.parse_pages import blocks, page
from tests.e2e import drill
from tests.support.fakes import FakeGateway
from tests.support.memory_folder import memory_folder
from tests.support.timeouts import wait_until
from tests.support.world import World, make_world

pytestmark = [pytest.mark.e2e, pytest.mark.full]


@pytest.fixture
def folder() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="payintent-drill-", dir=memory_folder()))
    root.chmod(0o711)  # so that the server's system user can reach its data
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def archiving(folder: Path) -> Iterator[Postgres]:
    """A server that archives its WAL as the page describes."""
    data = folder / "first" / "data"
    server = Postgres(data, durable=False)
    server.start()
    server.stop()
    (folder / "wal").mkdir()
    _change_owner(folder / "wal", data)
    files = blocks(page("docs/operate/backup.md"), "ini")
    [lines] = [lines for lines in files if "archive_command" in lines]
    with (data / "postgresql.conf").open("a") as file:
        file.write(lines.replace("$WAL", str(folder / "wal")))
    server.start()
    yield server
    server.stop()


def _change_owner(path: Path, like: Path) -> None:
    """Change a folder's owner to the database server's user, as a restore by root requires."""
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", f"--reference={like}", str(path)], check=True)


async def test_the_database_is_restored_to_a_moment_between_two_payments(
    archiving: Postgres, folder: Path, settings: Settings, gateway: FakeGateway
) -> None:
    url = archiving.url()
    await migrations_runner.migrate(url)
    service = await open_service(
        settings.model_copy(update={"database_url": url}), {"fake": gateway}
    )
    try:
        world = await make_world(service, gateway)
        drill.run("base backup", folder, url, BASE=str(folder / "base"))
        before = await world.create()
        [row] = await world.rows("SELECT clock_timestamp()::text AS moment")
        after = await world.create()
        await _archive_segment(world, folder / "wal")
    finally:
        await service.close()
    archiving.stop()

    second = folder / "second"
    second.mkdir()
    paths = {"BASE": folder / "base", "DATA": second / "data", "WAL": folder / "wal"}
    drill.run(
        "point-in-time recovery",
        folder,
        url,
        MOMENT=row["moment"],
        **{name: str(path) for name, path in paths.items()},
    )
    _change_owner(second / "data", folder / "first" / "data")
    # The restored roles have their old passwords.
    shutil.copy(folder / "first" / "postgres.password", second)
    assert await _list_payments(Postgres(second / "data", durable=False)) == {before.id}
    assert before.id != after.id


async def _archive_segment(world: World, wal: Path) -> None:
    """Finish the current WAL segment, and wait until it is archived."""
    [row] = await world.rows("SELECT pg_walfile_name(pg_current_wal_lsn()) AS name")
    await world.rows("SELECT pg_switch_wal()")
    await wait_until((wal / row["name"]).exists, "the segment is archived", drill.PATIENCE_S)


async def _list_payments(server: Postgres) -> set[object]:
    """Start a recovering server, wait until the recovery has finished, and read the payments."""
    connection = await asyncpg.connect(server.start())

    async def has_recovered() -> bool:
        return not await connection.fetchval("SELECT pg_is_in_recovery()")

    try:
        await wait_until(has_recovered, "the recovery has finished", drill.PATIENCE_S)
        return {row["id"] for row in await connection.fetch("SELECT id FROM payment")}
    finally:
        await connection.close()
        server.stop()
