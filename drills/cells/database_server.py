"""The PostgreSQL server of an installation, which can be killed, frozen and restarted."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from payintent_sandbox.postgres import Postgres
from tests.support.ports import free_port


class DatabaseServer:
    """A server that uses the same port after a restart."""

    def __init__(self, folder: Path) -> None:
        self._data = folder / "data"
        self._postgres = Postgres(self._data)
        self._port = free_port()

    @property
    def url(self) -> str:
        return f"{self._postgres.url()}?sslmode=disable"

    async def start(self) -> None:
        await asyncio.to_thread(self._postgres.start, self._port)

    async def kill(self) -> None:
        """Kill all server processes at once, as in a power failure."""
        self._send(signal.SIGKILL)
        await asyncio.sleep(0)

    async def freeze(self) -> None:
        """Suspend all server processes, so that connections stay open without a response."""
        self._send(signal.SIGSTOP)
        await asyncio.sleep(0)

    async def wake(self) -> None:
        self._send(signal.SIGCONT)
        await asyncio.sleep(0)

    async def stop(self) -> None:
        """Stop the server, even if it is frozen."""
        self._send(signal.SIGCONT)
        await asyncio.to_thread(self._postgres.stop)

    def _send(self, number: int) -> None:
        """Signal the postmaster first, so that it does not start children in the meantime."""
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
