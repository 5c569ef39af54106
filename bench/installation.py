"""The installation that benchmarks measure: PostgreSQL with fsync, and real service processes."""

import contextlib
import dataclasses
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from payintent_sandbox.installation import Ports, SandboxInstallation

_READY_TRIES_MAX = 300
_READY_WAIT_S = 0.1
_STOP_WAIT_S = 25.0


@dataclass(frozen=True, slots=True)
class EmptyApp:
    """The empty application's port and process id."""

    pid: int
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A sandbox that initially runs only the database."""

    world: SandboxInstallation
    log_dir: Path

    @property
    def api_key(self) -> str:
        return self.world.kept["merchants"][0]["api_key"]

    @property
    def merchant_id(self) -> int:
        return self.world.kept["merchants"][0]["id"]

    @contextlib.contextmanager
    def api(
        self, settings: Mapping[str, str] | None = None, *, processes: int = 1
    ) -> Iterator[int]:
        """Run the API with additional settings, and yield its process id."""
        command = ["payintent", "api", "--processes", str(processes)]
        command += ["--port", str(self.world.ports.api)]
        environment = {
            **self.world.service_environment(),
            "PAYINTENT_BUYER_CALLS_PER_S": "0",
            **(settings or {}),
        }
        with self._process("api", command, environment) as process:
            self._wait_ready(process, f"http://127.0.0.1:{self.world.ports.api}/readyz")
            yield process.pid

    @contextlib.contextmanager
    def empty_app(self) -> Iterator[EmptyApp]:
        """Run an empty application on the service's server, in addition to the API."""
        port = self.world.ports.operator
        environment = self.world.service_environment()
        with self._process("empty", ["bench.empty_app", str(port)], environment) as process:
            self._wait_ready(process, f"http://127.0.0.1:{port}/")
            yield EmptyApp(process.pid, port)

    @contextlib.contextmanager
    def worker(self, settings: Mapping[str, str] | None = None) -> Iterator[int]:
        """Run a worker process with additional settings, and yield its id."""
        environment = {**self.world.service_environment(), **(settings or {})}
        command = ["payintent", "worker", "--processes", "1"]
        with self._process("worker", command, environment) as process:
            yield process.pid

    @contextlib.contextmanager
    def gateway(self) -> Iterator[None]:
        """Run the simulator."""
        command = [
            "payintent_sandbox.emulators.simulator",
            "--port",
            str(self.world.ports.simulator),
        ]
        environment = self.world.simulator_environment()
        with self._process("simulator", command, environment) as process:
            self._wait_ready(process, f"{self.world.simulator_url}/healthz")
            yield

    @contextlib.contextmanager
    def _process(
        self, name: str, module: Sequence[str], environment: dict[str, str]
    ) -> Iterator[subprocess.Popen[bytes]]:
        tied = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
        inherited = {
            name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ
        }
        with (self.log_dir / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*tied, sys.executable, "-m", *module],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=inherited | environment,
            )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_STOP_WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _wait_ready(self, process: subprocess.Popen[bytes], url: str) -> None:
        for _ in range(_READY_TRIES_MAX):
            if process.poll() is not None:
                break
            with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):  # noqa: S310
                return
            time.sleep(_READY_WAIT_S)
        logs = "\n".join(path.read_text()[-2000:] for path in self.log_dir.glob("*.log"))
        raise RuntimeError(f"{url} does not respond\n{logs}")


def free_ports() -> Ports:
    """Find a free port for each sandbox port."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in dataclasses.fields(Ports)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return Ports(*(probe.getsockname()[1] for probe in probes))
