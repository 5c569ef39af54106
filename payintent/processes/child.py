"""What a supervisor knows of its processes."""

import os
import random
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

from payintent.processes.member import READY

#: From the signal that ends a process until it is killed; its own bound is 20 s.
END_MAX_S = 24.0
STATES = ("starting", "ready", "ending")
_WELL_AFTER_S = 60.0  # a process that ran so long begins a new row of failures
_RESTART_S, _RESTART_MAX_S = 0.2, 30.0
_DOUBLINGS_MAX = 8


@dataclass(slots=True, eq=False)
class Child:
    """One process, by the supervisor's end of its tie; times are of the monotonic clock."""

    pid: int
    number: int
    tie: socket.socket = field(repr=False)
    failures: int = 0  # in a row, of this process and those that it was started for
    started_at: float = field(default_factory=time.monotonic)
    is_ready: bool = False
    is_ending: bool = False  # it was told to
    kill_at: float = inf
    is_silent: bool = False  # nothing more comes by its tie

    @property
    def is_awaited(self) -> bool:
        """Tell whether it has yet to say that it serves."""
        return not self.is_ready and not self.is_silent

    @property
    def state(self) -> str:
        """Say what it does, in one of the words of `STATES`."""
        if self.is_ending:
            return "ending"
        return "ready" if self.is_ready else "starting"

    def end(self, number: signal.Signals) -> None:
        """Send the signal that ends it; it is killed where it goes on for too long."""
        self.is_ending = True
        self.kill_at = min(self.kill_at, time.monotonic() + END_MAX_S)
        self.send(number)

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.kill_at = inf
        self.send(signal.SIGKILL)

    def read_tie(self) -> None:
        """Take what it says; it says only that it serves."""
        with suppress(OSError):
            self.is_ready = self.tie.recv(len(READY)) == READY
        self.is_silent = not self.is_ready

    def failures_now(self) -> int:
        """Count its failures in a row, now that it has ended by itself."""
        ran_well = self.is_ready and time.monotonic() - self.started_at >= _WELL_AFTER_S
        return 1 if ran_well else self.failures + 1


def restart_wait_s(failures: int) -> float:
    """Return how long to wait after so many failures in a row: twice as long each time, by chance.

    The chance keeps processes that failed together from being started together.
    """
    longest = _RESTART_S * 2 ** min(failures - 1, _DOUBLINGS_MAX)
    return min(_RESTART_MAX_S, longest) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
