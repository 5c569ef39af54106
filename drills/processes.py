"""Programs that a drill starts, stops, kills and restarts."""

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
_SHOWN = 2_000  # characters of the log in an error message


class NotReadyError(Exception):
    """A process exited or did not respond in time. The message contains the end of its log."""


@dataclass(slots=True)
class Program:
    """A program that can be restarted. All its output is appended to the same log file."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    folder: Path
    ready_url: str = ""
    cwd: Path | None = None
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    async def start(self) -> None:
        """Start the program and wait until it is ready.

        Raises `NotReadyError` if it is not ready in time.
        """
        self._start()
        if self.ready_url:
            await self.wait_ready()

    def _start(self) -> None:
        # The kernel terminates the program when this process exits for any reason.
        tied = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*tied, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=plain_environment() | dict(self.environment),
                cwd=self.cwd,
                start_new_session=True,  # only the drill receives Ctrl-C; it then stops the program
            )

    async def wait_ready(self) -> None:
        """Wait until `ready_url` returns 200, or raise `NotReadyError`."""
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            if self.process is None or self.process.poll() is not None:
                break
            if await asyncio.to_thread(_answers, self.ready_url):
                return
            await asyncio.sleep(_LOOK_S)
        output = self.log.read_text(errors="replace")[-_SHOWN:]
        raise NotReadyError(f"{self.name} is not ready\n{output}")

    async def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal and wait for the exit. Kill the program if it does not exit in time."""
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
        """Send SIGKILL, as the kernel does when memory runs out."""
        await self.stop(signal.SIGKILL)


def api_program(number: int, port: int, environment: Mapping[str, str], folder: Path) -> Program:
    """Return an API with a single process, which is ready when `/readyz` returns 200."""
    command = payintent("api", "--processes", "1", "--port", str(port))
    ready_url = f"http://127.0.0.1:{port}/readyz"
    return Program(f"api-{number}", command, environment, folder, ready_url)


def payintent(*words: str) -> list[str]:
    """Return the command line of a `payintent` command."""
    return [sys.executable, "-m", "payintent", *words]


def plain_environment() -> dict[str, str]:
    """Return the environment variables that programs inherit, which contain no secrets."""
    names = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH")
    return {name: os.environ[name] for name in names if name in os.environ}


def _answers(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(url, timeout=2):  # noqa: S310
        return True
    return False
