"""Run `payintent dev` as a real process with separate ports and data.

A warm-started sandbox (see `warm_sandbox`) is sufficient if a test does not check the startup or
the processes.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support import processes, warm_sandbox
from tests.support.memory_folder import memory_folder
from tests.support.ports import free_port_base

START_S = 200
STOP_S = 120
POLL_S = 0.02
BUGS_MAX = 3


class Sandbox:
    """A running `payintent dev`, and the content of its `dev.json`."""

    def __init__(
        self,
        folder: Path,
        port_base: int,
        time_scale: int,
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
        *,
        chains: bool = True,
        warm: bool = False,
    ) -> None:
        self.var_dir = folder / "var"
        self.port_base = port_base
        self.time_scale = time_scale  # divides the simulator's delays
        self.output = folder / "dev.out"
        self.dev_json: dict[str, Any] = {}
        self._python = python
        self._extra_environment = environment or {}
        self._arguments = ["dev"] if chains else ["dev", "--no-chains"]
        self._warm = warm
        self._process: subprocess.Popen[bytes] | processes.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the sandbox, and wait until a payment can be made."""
        (self.var_dir / "dev.json").unlink(missing_ok=True)
        self._process = self._start_warm() if self._warm else self._start_cold()
        deadline = time.monotonic() + START_S
        while "ready" not in self.output.read_text().splitlines():
            assert self._process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline, f"not ready: {self.output.read_text()}"
            time.sleep(POLL_S)
        self.dev_json = json.loads((self.var_dir / "dev.json").read_text())

    def _start_cold(self) -> "subprocess.Popen[bytes]":
        with self.output.open("wb") as output:
            return subprocess.Popen(
                [*_terminate_with_parent(), self._python, "-m", "payintent", *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment(),
                start_new_session=True,
            )

    def _start_warm(self) -> processes.Process:
        arguments = [warm_sandbox.__name__, processes.server(), *self._arguments]
        with self.output.open("wb") as output:
            return processes.start(*arguments, output=output, env=self._environment())

    def stop(self) -> int:
        """Stop the sandbox with SIGTERM; return the exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(STOP_S)

    def run_again(self, **changes: str) -> "subprocess.CompletedProcess[str]":
        """Start a second `payintent dev`, which is expected to fail immediately."""
        environment = self._environment() | changes
        return processes.run("payintent", "dev", env=environment, timeout=START_S)

    def command(self, *arguments: str) -> str:
        """Run an operator command on the sandbox's database; return its output."""
        result = processes.run("payintent", *arguments, env=self._environment(), timeout=START_S)
        assert result.returncode == 0, result.stderr
        return result.stdout

    @property
    def settings_file(self) -> Path:
        """The file with the settings for operator commands."""
        return self.var_dir / "dev.env"

    def secrets(self) -> dict[str, Any]:
        """Return the values that must not change between starts."""
        return json.loads((self.var_dir / "sandbox.json").read_text())

    def simulator_key(self) -> str:
        return self.secrets()["simulator"]["api_key"]

    def child(self, name: str) -> int:
        """Return the process id of a child with this command (`api`, `worker`), or 0."""
        for pid in children_of(self.pid):
            if f"payintent {name}" in command_line(pid):
                return pid
        return 0

    def bugs(self) -> str:
        """Return the first log entries about unexpected errors in the API and the worker."""
        logs = [(self.var_dir / "logs" / f"{name}.log") for name in ("api", "worker")]
        lines = [line for log in logs for line in log.read_text().splitlines()]
        entries = [line for line in lines if '"event": "bug"' in line or "_failed" in line]
        return "\n".join(entries[:BUGS_MAX])

    def postmaster(self) -> int:
        return int((self.var_dir / "postgres" / "postmaster.pid").read_text().split()[0])

    def processes(self) -> list[int]:
        """Return the process ids of the supervisor and all its descendants."""
        pids, queue = [], [self.pid]
        while queue:
            pid = queue.pop()
            pids.append(pid)
            queue += children_of(pid)
        return pids

    def _environment(self) -> dict[str, str]:
        return os.environ | {
            "VAR_DIR": str(self.var_dir),
            "PORT_BASE": str(self.port_base),
            "SIM_TIME_SCALE": str(self.time_scale),
            **self._extra_environment,
        }


@contextmanager
def running_sandbox(
    time_scale: int = 20,
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
    *,
    chains: bool = True,
    warm: bool = False,
) -> Iterator[Sandbox]:
    """Run a sandbox in a separate folder, and remove everything at the end."""
    folder = Path(tempfile.mkdtemp(prefix="payintent-e2e-", dir=memory_folder()))
    folder.chmod(0o711)  # so that the database's system user can reach its data
    base = free_port_base()
    sandbox = Sandbox(folder, base, time_scale, python, environment, chains=chains, warm=warm)
    try:
        sandbox.start()
        yield sandbox
    finally:
        with suppress(AssertionError):
            sandbox.stop()
        shutil.rmtree(folder, ignore_errors=True)


def is_alive(pid: int) -> bool:
    """Return whether a process is running. A zombie has no command line."""
    return command_line(pid) != ""


def command_line(pid: int) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def children_of(parent: int) -> list[int]:
    children = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(FileNotFoundError, ProcessLookupError):
                # The command name in brackets can contain spaces and brackets.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == parent:
                    children.append(int(entry.name))
    return children


def _terminate_with_parent() -> list[str]:
    return ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
