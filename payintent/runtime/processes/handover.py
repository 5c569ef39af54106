"""Hand over a supervisor's state to the new program that replaces it on SIGHUP.

The supervisor re-executes its command line under the same process id, which starts the newly
installed program with the existing sockets, board and processes. Before the re-execution, a trial
starts the new program with the same command line and settings, and exits before it has any effect.
"""

import os
import socket
import sys
from itertools import chain
from pathlib import Path

import msgspec

from payintent.runtime.processes.board import Board

_HANDOVER, _TRIAL = "_PAYINTENT_HANDOVER", "_PAYINTENT_TRIAL"


class ProcessState(msgspec.Struct, frozen=True):
    """A running process; `channel` is the descriptor of the supervisor's end of its socket pair."""

    pid: int
    number: int
    channel: int = msgspec.field(name="tie")  # the name in earlier releases
    is_ready: bool = msgspec.field(name="ready")

    def open_channel(self) -> socket.socket:
        return socket.socket(fileno=self.channel)


class Handover(msgspec.Struct, frozen=True):
    """The supervisor's state, with descriptors instead of sockets."""

    board: int
    slots: int
    sockets: dict[str, list[int]]
    processes: list[ProcessState]
    unexpected_ends: int

    def open_board(self) -> Board:
        return Board(self.board, self.slots)

    def open_sockets(self) -> dict[str, list[socket.socket]]:
        return {
            name: [socket.socket(fileno=descriptor) for descriptor in descriptors]
            for name, descriptors in self.sockets.items()
        }


def end_trial() -> None:
    """Exit if this process is a trial. Call this after importing the program and its settings."""
    if _TRIAL in os.environ:
        sys.exit(0)


def start_trial() -> int:
    """Start a trial of the installed program, and return its process id."""
    command = _get_command_line()
    return os.posix_spawn(command[0], command, os.environ | {_TRIAL: "1"})


def receive_handover() -> Handover | None:
    """Return the previous program's state, or None if this program was started directly."""
    text = os.environ.pop(_HANDOVER, None)
    return None if text is None else msgspec.json.decode(text, type=Handover)


def execute_new_program(handover: Handover) -> None:
    """Execute the installed program in this process. Raises `OSError` if this fails."""
    command = _get_command_line()
    set_inheritable(handover, inheritable=True)
    try:
        text = msgspec.json.encode(handover).decode()
        os.execve(command[0], command, os.environ | {_HANDOVER: text})  # noqa: S606 - our own
    finally:
        set_inheritable(handover, inheritable=False)


def set_inheritable(handover: Handover, *, inheritable: bool) -> None:
    """Set whether child programs inherit the descriptors of the handover."""
    channels = (process.channel for process in handover.processes)
    for descriptor in chain((handover.board,), *handover.sockets.values(), channels):
        os.set_inheritable(descriptor, inheritable)


def _get_command_line() -> list[str]:
    """Return this process's command line, which starts the currently installed program."""
    if Path(sys.argv[0]).is_absolute() and os.access(sys.argv[0], os.X_OK):
        return list(sys.argv)
    return [sys.executable, *sys.orig_argv[1:]]


class BindError(Exception):
    """A listening address is unavailable; the message is meant for operators."""


def bind(host: str, port: int) -> list[socket.socket]:
    """Bind a socket to each address of a host, without listening. Raises `BindError`."""
    listeners: list[socket.socket] = []
    try:
        for family, _, _, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            listener = socket.socket(family, socket.SOCK_STREAM)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and sys.platform != "win32":
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.setblocking(False)
    except OSError as error:
        for listener in listeners:
            listener.close()
        reason = (error.strerror or str(error)).lower()
        raise BindError(f"cannot listen on {host} port {port}: {reason}") from error
    return listeners
