"""A command of the service with several processes under its supervisor."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from payintent.runtime.settings import Settings
from tests.e2e.drill import variables_of
from tests.support.ports import free_port
from tests.support.timeouts import PATIENCE_S

_LOOK_S = 0.03
_STARTED, _GONE = "process_started", {"process_stopped", "process_ended"}
_SCRIPT = "#!{python}\nfrom payintent.runtime import version\nversion.VERSION = {version!r}\n"
_SCRIPT += "from payintent.cli import main\nmain()\n"


@dataclass(frozen=True)
class Supervised:
    """A supervisor, its ports, and its processes' log."""

    running: "subprocess.Popen[bytes]"
    script: Path
    log: Path
    port: int
    metrics_port: int

    def install(self, version: str) -> None:
        """Replace the program with another version. The version "" cannot start."""
        text = _SCRIPT.format(python=sys.executable, version=version)
        new = self.script.with_suffix(".new")
        new.write_text(text if version else "#!/bin/sh\nexit 1\n")
        new.chmod(0o755)
        new.replace(self.script)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return an event's log lines, oldest first."""
        lines = self.log.read_text().splitlines()
        entries = [json.loads(line) for line in lines if line.startswith("{") and line[-1] == "}"]
        return [entry for entry in entries if entry["event"] == name]

    def pids(self) -> set[int]:
        """Return the running processes, according to the supervisor's log."""
        gone = {entry["pid"] for name in _GONE for entry in self.events(name)}
        return {entry["pid"] for entry in self.events(_STARTED)} - gone

    def metric(self, name: str, labels: str = "") -> float:
        """Read a metric at the supervisor's address; -1 if it does not exist yet."""
        with socket.create_connection(("127.0.0.1", self.metrics_port), PATIENCE_S) as connection:
            connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            with connection.makefile("rb") as answer:
                text = answer.read().decode()
        pattern = rf"^{name}{re.escape(labels)} (\S+)$"
        match = re.search(pattern, text, re.MULTILINE)
        return float(match[1]) if match else -1.0

    def wait_for(self, count: int) -> set[int]:
        """Wait until this many processes are serving, and return them."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            assert self.running.poll() is None, self.log.read_text()
            with suppress(OSError):
                ready = self.metric("payintent_processes", '{state="ready"}')
                if ready == count and len(self.pids()) == count:
                    return self.pids()
            time.sleep(_LOOK_S)
        raise AssertionError(self.log.read_text())

    def wait_for_event(self, name: str, count: int = 1) -> dict[str, Any]:
        """Wait until an event has been logged this many times, and return the last log line."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if len(lines := self.events(name)) >= count:
                return lines[count - 1]
            time.sleep(_LOOK_S)
        raise AssertionError(f"no {name}: {self.log.read_text()}")

    def signal(self, number: int) -> None:
        self.running.send_signal(number)

    def end(self) -> int:
        """Stop the supervisor as systemd does, and return its exit status."""
        self.signal(signal.SIGTERM)
        return self.running.wait(PATIENCE_S)

    def server_of(self, client: socket.socket) -> int:
        """Find the process at the other end of a connection to the port, or return 0."""
        inode = _inode(self.port, client.getsockname()[1])
        for pid in self.pids():
            with suppress(OSError):
                for entry in Path(f"/proc/{pid}/fd").iterdir():
                    with suppress(OSError):
                        if entry.readlink() == Path(f"socket:[{inode}]"):
                            return pid
        return 0


@contextmanager
def supervised(
    settings: Settings, folder: Path, command: str, more: Mapping[str, str]
) -> Iterator[Supervised]:
    """Run `api` or `worker` with two processes while the block runs."""
    port, metrics_port = free_port(), free_port()
    words = {
        "api": ["--port", str(port), "--operator-port", str(metrics_port)],
        "worker": ["--metrics-port", str(metrics_port)],
    }[command]
    script, log = folder / "payintent", folder / f"{command}.log"
    started = Supervised(None, script, log, port, metrics_port)  # type: ignore[arg-type]
    started.install("as started")
    with log.open("wb") as output:
        running = subprocess.Popen(
            [str(script), command, "--processes", "2", *words],
            env={"PATH": os.environ["PATH"], "PYTHONWARNINGS": "error"}
            | variables_of(settings)
            | dict(more),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    supervisor = Supervised(running, script, log, port, metrics_port)
    try:
        supervisor.wait_for(2)
        yield supervisor
    finally:
        if running.poll() is None:
            status = supervisor.end()
            assert status == 0, log.read_text()
    text = log.read_text()
    assert '"event": "bug"' not in text
    assert "Traceback" not in text
    assert "Warning" not in text


def _inode(server_port: int, client_port: int) -> str:
    """Find the server's socket of a connection between two loopback ports."""
    ends = f"0100007F:{server_port:04X} 0100007F:{client_port:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines():
        fields = line.split()
        if " ".join(fields[1:3]) == ends:
            return fields[9]
    return ""
