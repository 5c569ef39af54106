"""Hosts on this machine: network namespaces joined by a bridge that leads nowhere else."""

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "pidrill-"
_SWITCH = f"{_PREFIX}switch"
_NETWORK = "10.77.0"
APP = "app"
DATABASES = ("db1", "db2", "db3")
ETCDS = ("etcd1", "etcd2", "etcd3")
#: By host, the last number of its address.
_NUMBERS = {
    **{name: 10 + number for number, name in enumerate(DATABASES, 1)},
    **{name: 20 + number for number, name in enumerate(ETCDS, 1)},
    APP: 30,
}
_LOCK = Path("/run/payintent-drill-ha.lock")
_GONE_TRIES = 50
_GONE_LOOK_S = 0.1


def address(host: str) -> str:
    """Give a host's address."""
    return f"{_NETWORK}.{_NUMBERS[host]}"


def namespace(host: str) -> str:
    """Give the name of a host's namespace."""
    return _PREFIX + host


def within(host: str) -> list[str]:
    """Give the prefix of a command that is to run on a host."""
    return ["ip", "netns", "exec", namespace(host)]


class HostsTakenError(Exception):
    """Another drill runs on this machine; hosts have names, and there is one set of them."""


@contextmanager
def hosts() -> Generator[None]:
    """Make all hosts (`HostsTakenError`); at the end, however it comes, nothing of them is left."""
    with _LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HostsTakenError from error
        remove_all()
        try:
            _make()
            yield
        finally:
            remove_all()


def remove_all() -> None:
    """End every process on the hosts, then remove them; also those of a drill that was killed."""
    left = [name for name in _ip("netns", "list").split() if name.startswith(_PREFIX)]
    for name in left:
        _end_processes(name)
    for name in left:
        _ip("netns", "delete", name)


def _make() -> None:
    _ip("netns", "add", _SWITCH)
    _ip("-n", _SWITCH, "link", "add", "bridge", "type", "bridge")
    _ip("-n", _SWITCH, "link", "set", "bridge", "up")
    for host in _NUMBERS:
        name = namespace(host)
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", _SWITCH, "link", "add", host, "type", "veth", "peer", "name", "eth0")
        _ip("-n", _SWITCH, "link", "set", "eth0", "netns", name)
        _ip("-n", _SWITCH, "link", "set", host, "master", "bridge", "up")
        _ip("-n", name, "address", "add", f"{address(host)}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")


def unplug(host: str) -> None:
    """Cut a host off from all others, as a pulled cable does."""
    _ip("-n", _SWITCH, "link", "set", host, "down")


def plug_in(host: str) -> None:
    """Connect a host again."""
    _ip("-n", _SWITCH, "link", "set", host, "up")


def part(host: str, *others: str) -> None:
    """Drop silently what goes between a host and others, both ways."""
    _filter("-A", host, others)


def join(host: str, *others: str) -> None:
    """End what `part` did with the same arguments."""
    _filter("-D", host, others)


def processes(host: str) -> list[int]:
    """Give the ids of all processes on a host."""
    return _processes(namespace(host))


def send(host: str, number: int, *kept: int) -> None:
    """Send a signal to every process on a host but those that are kept."""
    for process in set(processes(host)) - set(kept):
        with suppress(ProcessLookupError):
            os.kill(process, number)


def _filter(change: str, host: str, others: tuple[str, ...]) -> None:
    for other in others:
        for place, sender in ((host, other), (other, host)):
            _run(*within(place), "iptables", change, "INPUT", "-s", address(sender), "-j", "DROP")


def _end_processes(name: str) -> None:
    for _ in range(_GONE_TRIES):
        found = [process for process in _processes(name) if process != os.getpid()]
        if not found:
            return
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)
                os.kill(process, signal.SIGKILL)
        time.sleep(_GONE_LOOK_S)


def _processes(name: str) -> list[int]:
    return [int(process) for process in _ip("netns", "pids", name).split()]


def _ip(*words: str) -> str:
    return _run("ip", *words)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
