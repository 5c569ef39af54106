"""A primary with a streaming standby, for tests that pause and stop the standby."""

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from payintent_sandbox.postgres import Postgres, find_binaries

_WAIT_S = 60


@dataclass
class StandbyPair:
    """Both servers. The standby's port never changes."""

    primary: Postgres
    standby: Postgres
    port: int

    def start_standby(self) -> None:
        self.standby.start(self.port)

    async def on_standby(self, statement: str) -> None:
        connection = await asyncpg.connect(self.standby.url())
        await connection.execute(statement)
        await connection.close()


@contextmanager
def standby_pair(folder: Path) -> Generator[StandbyPair]:
    """Start a primary and a standby that streams from it."""
    for name in ("primary", "standby"):
        (folder / name).mkdir()
    primary = Postgres(folder / "primary" / "data", durable=False)
    standby = Postgres(folder / "standby" / "data", durable=False)
    try:
        _copy(primary.start(), folder)
        yield StandbyPair(primary, standby, urlsplit(standby.start()).port or 0)
    finally:
        standby.stop()
        primary.stop()


def _copy(url: str, folder: Path) -> None:
    parts = urlsplit(url)
    data = folder / "standby" / "data"
    subprocess.run(
        [
            *(str(find_binaries() / "pg_basebackup"), "--no-sync", "--checkpoint=fast"),
            *("--write-recovery-conf", "--no-password", f"--pgdata={data}"),
            *(f"--host={parts.hostname}", f"--port={parts.port}", f"--username={parts.username}"),
        ],
        env={"PATH": os.environ["PATH"], "PGPASSWORD": parts.password or ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_WAIT_S,
        check=True,
    )
    owner = (folder / "primary" / "data").stat()
    for path in [data, *data.rglob("*")]:
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    shutil.copy(folder / "primary" / "postgres.password", folder / "standby")
