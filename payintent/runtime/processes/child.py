"""Restart delays, the number of usable cores, and the supervisor's view of a process."""

import os
import random
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil, inf
from pathlib import Path

from payintent.runtime.processes.member import READY

#: Time between the signal that ends a process and the SIGKILL. A drain takes at most 20 s.
END_MAX_S = 24.0
STATES = ("starting", "ready", "ending")
_STABLE_AFTER_S = 60.0  # running time that resets the number of consecutive failures
_RESTART_S, _RESTART_MAX_S = 0.2, 30.0
_DOUBLINGS_MAX = 8


@dataclass(slots=True, eq=False)
class Child:
    """A process, with the supervisor's end of its socket pair as `channel`. Times are monotonic."""

    pid: int
    number: int
    channel: socket.socket = field(repr=False)
    failures: int = 0  # consecutive, including the failures of the processes that it replaces
    started_at: float = field(default_factory=time.monotonic)
    is_ready: bool = False
    is_ending: bool = False  # the supervisor has sent a signal that ends it
    kill_at: float = inf
    is_channel_closed: bool = False  # the process has closed its end

    @property
    def is_starting(self) -> bool:
        """Whether the process may still report that it is ready."""
        return not self.is_ready and not self.is_channel_closed

    @property
    def state(self) -> str:
        if self.is_ending:
            return "ending"
        return "ready" if self.is_ready else "starting"

    def end(self, signal_number: signal.Signals) -> None:
        """Send a signal that ends the process, and schedule a SIGKILL."""
        self.is_ending = True
        self.kill_at = min(self.kill_at, time.monotonic() + END_MAX_S)
        self.send(signal_number)

    def send(self, signal_number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal_number)

    def kill(self) -> None:
        self.kill_at = inf
        self.send(signal.SIGKILL)

    def read_channel(self) -> None:
        """Read the ready message, the only message that the process sends."""
        with suppress(OSError):
            self.is_ready = self.channel.recv(len(READY)) == READY
        self.is_channel_closed = not self.is_ready

    def count_next_failures(self) -> int:
        """Return the number of consecutive failures after an unexpected exit."""
        was_stable = self.is_ready and time.monotonic() - self.started_at >= _STABLE_AFTER_S
        return 1 if was_stable else self.failures + 1


def compute_restart_wait_s(failures: int) -> float:
    """Return the restart delay after consecutive failures: exponential backoff with jitter."""
    delay_s = _RESTART_S * 2 ** min(failures - 1, _DOUBLINGS_MAX)
    return min(_RESTART_MAX_S, delay_s) * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret


def count_usable_cores(root: Path = Path("/")) -> int:
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min([affinity or 1, *(ceil(quota) for quota in _read_quotas(root))]))


def _read_quotas(root: Path) -> Iterator[float]:
    """Yield the CPU quotas of this process's cgroups and their parents, in cores."""
    mount = root / "sys/fs/cgroup"
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _read_v2_quotas(mount, path)
        elif "cpu" in controllers.split(","):
            yield from _read_v1_quotas(mount / "cpu", path)


def _read_v2_quotas(mount: Path, path: str) -> Iterator[float]:
    for folder in _iterate_folders(mount, path):
        quota, _, period = _read_text(folder / "cpu.max").partition(" ")  # quota may be `max`
        if quota.isdecimal() and period.strip().isdecimal():
            yield int(quota) / int(period)


def _read_v1_quotas(mount: Path, path: str) -> Iterator[float]:
    for folder in _iterate_folders(mount, path):
        quota = _read_text(folder / "cpu.cfs_quota_us").strip()  # -1 means no quota
        period = _read_text(folder / "cpu.cfs_period_us").strip()
        if quota.isdecimal() and period.isdecimal():
            yield int(quota) / int(period)


def _iterate_folders(mount: Path, path: str) -> Iterator[Path]:
    yield mount
    folder = mount
    for folder_name in Path(path.lstrip("/")).parts:
        folder /= folder_name
        yield folder


def _read_text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
