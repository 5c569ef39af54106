"""Run commands of the service without the half second that each needs for imports.

Each test process has a server process that has imported the service and forks a process for each
command. The forked process has its own arguments, environment, folder, streams, process id, signals
and exit status. Tests of the program itself (its interpreter, its installed script or its imports)
need a process that is started normally.

`python -m tests.support.warm_python serve LISTENER KEEPER` is the server process. Its arguments are
the file descriptors of two sockets: it accepts requests on the first until the second is closed.
`python warm_python.py run PATH payintent WORD…` runs a command for a shell.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import runpy
import selectors
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REQUEST_MAX = 160 * 1024
NUMBER_MAX = 32  # the bytes of a process id or exit status
_SERVICE = (
    "payintent.merchants.access",
    "payintent.cli.commands",
    "payintent.cli.doctor",
    "payintent.cli.operation_commands",
    "payintent.cli.reconcile",
    "payintent.cli.serve_api",
    "payintent.cli.work",
    "rich.console",
    "rich.table",
)
_SANDBOX = (
    "payintent_sandbox.dev",
    "payintent_sandbox.emulators.ecpay.app",
    "payintent_sandbox.emulators.simulator.app",
    "payintent_sandbox.emulators.stripe.app",
    "payintent_sandbox.emulators.twoc2p.app",
    "payintent_sandbox.shop.app",
)
_STREAMS = 3
_PR_SET_PDEATHSIG = 1


def request(
    path: str,
    words: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    streams: Sequence[int],
) -> socket.socket:
    """Request a process. The connection returns its process id, and later its exit status."""
    message = {
        "words": list(words),
        "environment": dict(environment),
        "folder": str(folder),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    }
    data = json.dumps(message).encode()
    assert len(data) <= REQUEST_MAX, "the arguments and variables exceed the size of a message"
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(path)
    socket.send_fds(connection, [data], list(streams))
    return connection


class _Server:
    """Forks the requested processes, reports their exit statuses, and ends them with its keeper."""

    def __init__(self, listener: socket.socket, keeper: socket.socket) -> None:
        self._listener = listener
        self._keeper = keeper
        self._running: dict[int, socket.socket] = {}
        self._woken, self._wakes = socket.socketpair()
        for end in (self._woken, self._wakes):
            end.setblocking(False)

    def run(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes.fileno())
        selector = selectors.DefaultSelector()
        for waited in (self._listener, self._keeper, self._woken):
            selector.register(waited, selectors.EVENT_READ)
        ready: list[object] = []
        while self._keeper not in ready:
            ready = [key.fileobj for key, _ in selector.select()]
            if self._woken in ready:
                self._woken.recv(4096)
                self._reap()
            if self._listener in ready:
                self._fork(self._listener.accept()[0])
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)

    def _fork(self, connection: socket.socket) -> None:
        message, streams, _, _ = socket.recv_fds(connection, REQUEST_MAX, _STREAMS)
        pid = os.fork()
        if pid == 0:
            connection.close()
            self._become(json.loads(message), streams)
        for descriptor in streams:
            os.close(descriptor)
        self._running[pid] = connection
        _send(connection, pid)

    def _become(self, message: dict[str, Any], streams: list[int]) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()  # only the tests receive Ctrl-C from a terminal
        ours = (self._listener, self._keeper, self._woken, self._wakes)
        for opened in (*ours, *self._running.values()):
            opened.close()
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os._exit(_run(**message))

    def _reap(self) -> None:
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with self._running.pop(pid) as connection:
                _send(connection, os.waitstatus_to_exitcode(status))


def _send(connection: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the requester may have gone
        connection.send(str(number).encode())


def _run(words: list[str], environment: dict[str, str], folder: str, files: tuple[int, int]) -> int:
    """Run `python -m` with these arguments, and return the exit status."""
    resource.setrlimit(resource.RLIMIT_NOFILE, files)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = words
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    if environment.get("PYTHONWARNINGS") == "error":
        warnings.simplefilter("error")
    status = _status_of(words[0])
    gc.collect()  # report unclosed objects, as at the end of the interpreter
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _status_of(module: str) -> int:
    """Run a module to its end; return the exit status that the interpreter would have."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
            return 1
        return ended.code or 0
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        return 1
    return 0


def _serve(listener: int, keeper: int) -> None:
    """Import the service, and fork it for each request."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in _SERVICE:
            importlib.import_module(name)
    for name in _SANDBOX:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    _Server(socket.socket(fileno=listener), socket.socket(fileno=keeper)).run()


def _run_for_a_shell(path: str, words: list[str]) -> int:
    with request(path, words, os.environ, Path.cwd(), range(_STREAMS)) as connection:
        connection.recv(NUMBER_MAX)  # the process id
        return int(connection.recv(NUMBER_MAX) or 1)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve(int(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(_run_for_a_shell(sys.argv[2], sys.argv[3:]))
