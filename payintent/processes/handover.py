"""What a supervisor hands over to the program that it becomes on SIGHUP.

It executes its own command line anew, and so the program that is installed by then, under the
same process id: sockets, board and processes stay. Before that the new program is tried: started
with the same command line and settings, it ends before it does anything.
"""

import os
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from payintent.processes.board import Board

_HANDOVER, _TRIAL = "_PAYINTENT_HANDOVER", "_PAYINTENT_TRIAL"


class HandedProcess(msgspec.Struct, frozen=True):
    """A process that goes on, and the supervisor's end of its tie."""

    pid: int
    number: int
    tie: int
    ready: bool

    def open_tie(self) -> socket.socket:
        return _open(self.tie)


class Handover(msgspec.Struct, frozen=True):
    """What goes on: descriptors by number, and processes."""

    board: int
    slots: int
    sockets: dict[str, list[int]]
    processes: list[HandedProcess]
    unexpected_ends: int

    def open_board(self) -> Board:
        return Board(self.board, self.slots)

    def open_sockets(self) -> dict[str, list[socket.socket]]:
        return {
            name: [_open(descriptor) for descriptor in descriptors]
            for name, descriptors in self.sockets.items()
        }


def end_trial() -> None:
    """End a program that was only tried: it could be loaded, and its settings are right."""
    if _TRIAL in os.environ:
        sys.exit(0)


def start_trial() -> int:
    """Start the program as it is installed now, to see whether it can be; gives its process id."""
    command = _command()
    return os.posix_spawn(command[0], command, os.environ | {_TRIAL: "1"})


def receive() -> Handover | None:
    """Return what was handed over to this program; None where it begins."""
    text = os.environ.pop(_HANDOVER, None)
    return None if text is None else msgspec.json.decode(text, type=Handover)


def become_new(handover: Handover) -> None:
    """Become the program that is installed now (`OSError`); does not return."""
    command = _command()
    _set_inheritable(handover, inheritable=True)
    try:
        text = msgspec.json.encode(handover).decode()
        os.execve(command[0], command, os.environ | {_HANDOVER: text})  # noqa: S606 - our own
    finally:
        _set_inheritable(handover, inheritable=False)


def keep_to_this_program(handover: Handover) -> None:
    """Let no program that is started later inherit what was handed over."""
    _set_inheritable(handover, inheritable=False)


def _open(descriptor: int) -> socket.socket:
    return socket.socket(fileno=descriptor)


def _descriptors(handover: Handover) -> Iterable[int]:
    yield handover.board
    for descriptors in handover.sockets.values():
        yield from descriptors
    for process in handover.processes:
        yield process.tie


def _set_inheritable(handover: Handover, *, inheritable: bool) -> None:
    for descriptor in _descriptors(handover):
        os.set_inheritable(descriptor, inheritable)


def _command() -> list[str]:
    """Return the command line of this process; a script is found anew, where it is installed."""
    if Path(sys.argv[0]).is_absolute() and os.access(sys.argv[0], os.X_OK):
        return list(sys.argv)
    return [sys.executable, *sys.orig_argv[1:]]
