"""Workspaces for the parts of the benchmark: an empty database with fsync, and a folder."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from payintent_sandbox.postgres import Postgres


@dataclass(frozen=True, slots=True)
class Place:
    """A folder for files, and the URL of a dedicated database."""

    folder: Path
    url: str


#: Opens a place for the part with this name.
Places = Callable[[str], AbstractContextManager[Place]]


def own_servers(var_dir: Path) -> Places:
    """Give each part a separate server, which earlier parts have neither filled nor warmed up."""

    @contextlib.contextmanager
    def open_place(name: str) -> Iterator[Place]:
        folder = Path(tempfile.mkdtemp(prefix=f"bench-{name}-", dir=var_dir))
        folder.chmod(0o711)  # so that the server's user can access its data
        postgres = Postgres(folder / "postgres", durable=True)
        try:
            yield Place(folder, postgres.start())
        finally:
            postgres.stop()
            shutil.rmtree(folder, ignore_errors=True)

    return open_place


def own_databases(server: Place) -> Places:
    """Give each part a database on a running server, which is quicker but less precise."""

    @contextlib.contextmanager
    def open_place(name: str) -> Iterator[Place]:
        folder = server.folder / name
        folder.mkdir()
        asyncio.run(_create_database(server.url, name))
        yield Place(folder, urlunsplit(urlsplit(server.url)._replace(path=f"/{name}")))

    return open_place


async def _create_database(url: str, name: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(f'CREATE DATABASE "{name}"')
    await connection.close()
