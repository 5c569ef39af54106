"""Handover of a supervisor's state to the new program that replaces it on SIGHUP.

The supervisor executes its command line again, and thereby the installed program, under the same
process id; sockets, board and processes are kept. Before that it runs the new program on trial with
the same command line and settings, which ends before it has any effect.
"""

import os
import socket
import sys
from itertools import chain
from pathlib import Path

import msgspec

from payintent.runtime.processes.board import Board

_HANDOVER, _TRIAL = "_PAYINTENT_HANDOVER", "_PAYINTENT_TRIAL"


class HandedProcess(msgspec.Struct, frozen=True):
    """A running process, and the descriptor of the supervisor's end of its socket pair."""

    pid: int
    number: int
    tie: int
    ready: bool

    def open_tie(self) -> socket.socket:
        return socket.socket(fileno=self.tie)


class Handover(msgspec.Struct, frozen=True):
    """The state to hand over, with sockets as descriptors."""

    board: int
    slots: int
    sockets: dict[str, list[int]]
    processes: list[HandedProcess]
    unexpected_ends: int

    def open_board(self) -> Board:
        return Board(self.board, self.slots)

    def open_sockets(self) -> dict[str, list[socket.socket]]:
        return {
            name: [socket.socket(fileno=descriptor) for descriptor in descriptors]
            for name, descriptors in self.sockets.items()
        }


def end_trial() -> None:
    """End a program on trial: it was imported, and its settings are valid."""
    if _TRIAL in os.environ:
        sys.exit(0)


def start_trial() -> int:
    """Start the installed program on trial, and return its process id."""
    command = _command()
    return os.posix_spawn(command[0], command, os.environ | {_TRIAL: "1"})


def receive() -> Handover | None:
    """Return the state of the previous program; None if there is none."""
    text = os.environ.pop(_HANDOVER, None)
    return None if text is None else msgspec.json.decode(text, type=Handover)


def become_new(handover: Handover) -> None:
    """Execute the installed program (`OSError`); does not return."""
    command = _command()
    set_inheritable(handover, inheritable=True)
    try:
        text = msgspec.json.encode(handover).decode()
        os.execve(command[0], command, os.environ | {_HANDOVER: text})  # noqa: S606 - our own
    finally:
        set_inheritable(handover, inheritable=False)


def set_inheritable(handover: Handover, *, inheritable: bool) -> None:
    """Decide whether child programs inherit the handed-over descriptors."""
    ties = (process.tie for process in handover.processes)
    for descriptor in chain((handover.board,), *handover.sockets.values(), ties):
        os.set_inheritable(descriptor, inheritable)


def _command() -> list[str]:
    """Return the command line of this process, which runs the script that is installed now."""
    if Path(sys.argv[0]).is_absolute() and os.access(sys.argv[0], os.X_OK):
        return list(sys.argv)
    return [sys.executable, *sys.orig_argv[1:]]


class BindError(Exception):
    """A listening address is unavailable; the message is for operators."""


def bind(host: str, port: int) -> list[socket.socket]:
    """Bind a socket to each address of a host, without listening (`BindError`)."""
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
