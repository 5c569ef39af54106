"""Warm-started processes of the service for tests; see `warm_python`."""

import atexit
import functools
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tests.support import warm_python
from tests.support.timeouts import PATIENCE_S

_SERVER_DIED = -signal.SIGKILL


class Process:
    """A warm-started process, with the parts of `subprocess.Popen` that tests use."""

    def __init__(self, words: list[str], connection: socket.socket) -> None:
        self._words = words
        self._connection = connection
        self._connection.settimeout(PATIENCE_S)
        self.pid = int(connection.recv(warm_python.NUMBER_MAX))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, or None while the process is running."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float = PATIENCE_S) -> int:
        """Wait until the process ends, and return its exit status, negative for a signal."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                status = self._connection.recv(warm_python.NUMBER_MAX)
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired(self._words, timeout) from None
            self.returncode = int(status) if status else _SERVER_DIED
            self._connection.close()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    *words: str,
    output: IO[bytes],
    env: Mapping[str, str],
    errors: IO[bytes] | None = None,
    folder: Path | None = None,
) -> Process:
    """Start `python -m` with these arguments. Without `errors`, all output goes to `output`."""
    with Path(os.devnull).open("rb") as nothing:
        streams = [stream.fileno() for stream in (nothing, output, errors or output)]
        connection = warm_python.request(server(), words, env, folder or Path.cwd(), streams)
    return Process(list(words), connection)


def run(
    *words: str, env: Mapping[str, str], folder: Path | None = None, timeout: float = PATIENCE_S
) -> "subprocess.CompletedProcess[str]":
    """Run `python -m` with these arguments; return its output and exit status."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = start(*words, output=output, errors=errors, env=env, folder=folder)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        outputs = [_read(stream) for stream in (output, errors)]
    return subprocess.CompletedProcess(list(words), status, *outputs)


def _read(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode()


@functools.cache
def server() -> str:
    """Start the process that forks the others; return the path of its socket.

    It ends with this process. Requests wait until it has imported the service.
    """
    folder = tempfile.TemporaryDirectory(prefix="payintent-warm-")
    path = str(Path(folder.name, "socket"))
    ours, theirs = socket.socketpair()
    with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        passed = [listener.fileno(), theirs.fileno()]
        started = subprocess.Popen(
            [sys.executable, "-m", warm_python.__name__, "serve", *map(str, passed)],
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
        )

    def end() -> None:
        ours.close()
        started.wait()
        folder.cleanup()

    atexit.register(end)
    return path
