"""The PostgreSQL server of an installation, which can be killed, frozen and started again."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from payintent_sandbox.postgres import Postgres
from tests.support.world import free_port


class DatabaseServer:
    """A server that keeps its port when it is started again."""

    def __init__(self, folder: Path) -> None:
        """Keep its data in a folder of its own."""
        self._data = folder / "data"
        self._postgres = Postgres(self._data)
        self._port = free_port()

    @property
    def url(self) -> str:
        """Return the address of its database."""
        return f"{self._postgres.url()}?sslmode=disable"

    async def start(self) -> None:
        """Start it, or start it again."""
        await asyncio.to_thread(self._postgres.start, self._port)

    async def kill(self) -> None:
        """Kill all its processes at once, as a host that loses its power does."""
        self._send(signal.SIGKILL)
        await asyncio.sleep(0)

    async def freeze(self) -> None:
        """Stop all its processes: connections stay open, and nothing answers."""
        self._send(signal.SIGSTOP)
        await asyncio.sleep(0)

    async def wake(self) -> None:
        """Let a frozen server go on."""
        self._send(signal.SIGCONT)
        await asyncio.sleep(0)

    async def stop(self) -> None:
        """End it, also where it is frozen."""
        self._send(signal.SIGCONT)
        await asyncio.to_thread(self._postgres.stop)

    def _send(self, number: int) -> None:
        """Signal the server, then its children: none is started meanwhile."""
        with suppress(FileNotFoundError, ProcessLookupError):
            postmaster = int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])
            children = list(_children(postmaster))
            os.kill(postmaster, number)
            for child in {*children, *_children(postmaster)}:
                with suppress(ProcessLookupError):
                    os.kill(child, number)


def _children(parent: int) -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            pid, _, rest = stat.read_text().partition(" (")
            if int(rest.rpartition(")")[2].split()[1]) == parent:
                yield int(pid)
