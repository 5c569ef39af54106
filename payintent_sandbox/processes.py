"""Supervise the sandbox's processes: start, restart and stop them in order."""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_STOP_WAIT_S = 25.0
_RESTART_WAITS_S = (0.2, 0.5, 1.0, 2.0, 5.0)
_WELL_AFTER_S = 5.0  # a process that ran this long is restarted after the shortest delay


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """A process: its name, its command, and additions to the plain environment."""

    name: str
    command: Sequence[str]
    environment: dict[str, str] = field(repr=False)


class ProcessSupervisor:
    """Runs a set of processes and restarts those that end."""

    def __init__(self, children: Sequence[ChildProcess], log_dir: Path) -> None:
        self._children = children
        self._log_dir = log_dir
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def start(self) -> None:
        """Start all processes. Each appends to a log file with its name."""
        self._log_dir.mkdir(parents=True, exist_ok=True)
        for child in self._children:
            await self._start(child)

    async def supervise(self, stop: asyncio.Event) -> None:
        """Restart every process that ends, until `stop` is set."""
        tasks = [asyncio.create_task(self._restart(child)) for child in self._children]
        await stop.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self) -> None:
        """Stop all processes in reverse order, and let each finish its work."""
        for child in reversed(self._children):
            process = self._running.get(child.name)
            if process is None or process.returncode is not None:
                continue
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), _STOP_WAIT_S)
            except TimeoutError:
                process.kill()
                await process.wait()

    async def _start(self, child: ChildProcess) -> None:
        with (self._log_dir / f"{child.name}.log").open("ab") as log:
            self._running[child.name] = await asyncio.create_subprocess_exec(
                *parent_death_launcher(),
                *child.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=plain_environment() | child.environment,
                start_new_session=True,  # only the supervisor receives Ctrl-C
            )

    async def _restart(self, child: ChildProcess) -> None:
        failures = 0
        while True:
            started = time.monotonic()
            status = await self._running[child.name].wait()
            if time.monotonic() - started > _WELL_AFTER_S:
                failures = 0
            wait = _RESTART_WAITS_S[min(failures, len(_RESTART_WAITS_S) - 1)]
            print(f"{child.name} ended with status {status}; starting again", flush=True)
            await asyncio.sleep(wait)
            await self._start(child)
            failures += 1


def parent_death_launcher() -> list[str]:
    """Return a command prefix that makes the kernel stop a child when its supervisor is killed.

    It is empty without util-linux.
    """
    return ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []


def plain_environment() -> dict[str, str]:
    """Return this process's environment without secrets, for a child."""
    names = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH")
    return {name: os.environ[name] for name in names if name in os.environ}
