"""The supervisor's record of a process."""

import os
import random
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

from payintent.processes.member import READY

#: From the signal that ends a process until it is killed; a process limits its drain to 20 s.
END_MAX_S = 24.0
STATES = ("starting", "ready", "ending")
_STABLE_AFTER_S = 60.0  # resets the number of failures in a row
_RESTART_S, _RESTART_MAX_S = 0.2, 30.0
_DOUBLINGS_MAX = 8


@dataclass(slots=True, eq=False)
class Child:
    """A process with the supervisor's end of its socket pair; times are monotonic."""

    pid: int
    number: int
    tie: socket.socket = field(repr=False)
    failures: int = 0  # in a row, including the processes that it replaces
    started_at: float = field(default_factory=time.monotonic)
    is_ready: bool = False
    is_ending: bool = False  # the supervisor ends it
    kill_at: float = inf
    is_silent: bool = False  # it has closed its end of `tie`

    @property
    def is_awaited(self) -> bool:
        """Return True if the process may still report that it is ready."""
        return not self.is_ready and not self.is_silent

    @property
    def state(self) -> str:
        if self.is_ending:
            return "ending"
        return "ready" if self.is_ready else "starting"

    def end(self, number: signal.Signals) -> None:
        """Send a signal that ends the process, and schedule its kill."""
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
        """Receive the only possible message: that the process is ready."""
        with suppress(OSError):
            self.is_ready = self.tie.recv(len(READY)) == READY
        self.is_silent = not self.is_ready

    def failures_now(self) -> int:
        """Count the failures in a row, after an unexpected end."""
        was_stable = self.is_ready and time.monotonic() - self.started_at >= _STABLE_AFTER_S
        return 1 if was_stable else self.failures + 1


def restart_wait_s(failures: int) -> float:
    """Return the delay after a number of failures in a row: exponential backoff with jitter."""
    delay_s = _RESTART_S * 2 ** min(failures - 1, _DOUBLINGS_MAX)
    return min(_RESTART_MAX_S, delay_s) * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
