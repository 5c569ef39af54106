"""Processes of the service that a drill starts, ends, kills and starts again."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_READY_S = 90.0
_STOP_S = 40.0
_LOOK_S = 0.05
_SHOWN = 2_000  # characters of a log, in an error


class NotReadyError(Exception):
    """A process ended or did not answer in time; the message has the end of its log."""


@dataclass(slots=True)
class Program:
    """A program that can be started again; its output goes to one file."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    folder: Path
    ready_url: str = ""
    cwd: Path | None = None
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def log(self) -> Path:
        """Give the file that it writes to."""
        return self.folder / f"{self.name}.log"

    async def start(self) -> None:
        """Start it, and wait until it is ready (`NotReadyError`)."""
        self._start()
        if self.ready_url:
            await self.wait_ready()

    def _start(self) -> None:
        # The kernel ends it with this process, however that ends.
        tied = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*tied, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=plain_environment() | dict(self.environment),
                cwd=self.cwd,
                start_new_session=True,  # Ctrl-C reaches the drill alone, which ends it in order
            )

    async def wait_ready(self) -> None:
        """Wait until its address answers with a 200 (`NotReadyError`)."""
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            if self.process is None or self.process.poll() is not None:
                break
            if await asyncio.to_thread(_answers, self.ready_url):
                return
            await asyncio.sleep(_LOOK_S)
        written = self.log.read_text(errors="replace")[-_SHOWN:]
        raise NotReadyError(f"{self.name} is not ready\n{written}")

    async def stop(self, number: int = signal.SIGTERM) -> None:
        """End it with a signal, and wait until it has ended."""
        process, self.process = self.process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(number)
        try:
            await asyncio.to_thread(process.wait, _STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)

    async def kill(self) -> None:
        """Kill it, as the kernel does when memory runs out."""
        await self.stop(signal.SIGKILL)


def api_program(number: int, port: int, environment: Mapping[str, str], folder: Path) -> Program:
    """Describe one process of the API, which is ready when `/readyz` says so."""
    command = payintent("api", "--processes", "1", "--port", str(port))
    ready_url = f"http://127.0.0.1:{port}/readyz"
    return Program(f"api-{number}", command, environment, folder, ready_url)


def payintent(*words: str) -> list[str]:
    """Give the command line of one of the service's own commands."""
    return [sys.executable, "-m", "payintent", *words]


def plain_environment() -> dict[str, str]:
    """Give the part of this process's environment that a program may have: no secrets."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH")
    return {name: os.environ[name] for name in kept if name in os.environ}


def _answers(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(url, timeout=2):  # noqa: S310
        return True
    return False
