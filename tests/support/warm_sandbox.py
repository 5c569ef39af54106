"""`payintent dev` in a warm-started process with warm-started children; see `warm_python`.

The children are then not child processes of the sandbox. Tests that look for its children, or kill
the sandbox, start a normal sandbox.
"""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, cast

from payintent.cli import main
from payintent_sandbox import dev
from payintent_sandbox.processes import ChildProcess, ProcessSupervisor, plain_environment
from tests.support import warm_python


class _Child:
    """A child, with the parts of `asyncio.subprocess.Process` that a supervisor uses."""

    def __init__(self, connection: socket.socket) -> None:
        self._pid = int(connection.recv(warm_python.NUMBER_MAX))
        connection.setblocking(False)
        self._ended = asyncio.create_task(_status(connection))

    @property
    def returncode(self) -> int | None:
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            os.kill(self._pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


async def _status(connection: socket.socket) -> int:
    with connection:
        loop = asyncio.get_running_loop()
        status = await loop.sock_recv(connection, warm_python.NUMBER_MAX)
    return int(status or -signal.SIGKILL)


class _WarmSupervisor(ProcessSupervisor):
    """Requests its children from the server process that started the sandbox."""

    path: str

    async def _start(self, child: ChildProcess) -> None:
        python, option, *words = child.command
        assert (python, option) == (sys.executable, "-m")
        environment = plain_environment() | child.environment
        with (
            Path(os.devnull).open("rb") as nothing,
            (self._log_dir / f"{child.name}.log").open("ab") as log,
        ):
            streams = [stream.fileno() for stream in (nothing, log, log)]
            connection = warm_python.request(self.path, words, environment, Path.cwd(), streams)
        self._running[child.name] = cast("Any", _Child(connection))


if __name__ == "__main__":
    _WarmSupervisor.path = sys.argv.pop(1)
    dev.ProcessSupervisor = _WarmSupervisor
    main()
