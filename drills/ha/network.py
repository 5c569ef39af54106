"""Simulates hosts with network namespaces, which are connected by an isolated bridge."""

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
#: The last byte of each host's address.
_NUMBERS = {
    **{name: 10 + number for number, name in enumerate(DATABASES, 1)},
    **{name: 20 + number for number, name in enumerate(ETCDS, 1)},
    APP: 30,
}
_LOCK = Path("/run/payintent-drill-ha.lock")
_GONE_TRIES = 50
_GONE_LOOK_S = 0.1


def address(host: str) -> str:
    return f"{_NETWORK}.{_NUMBERS[host]}"


def namespace(host: str) -> str:
    return _PREFIX + host


def within(host: str) -> list[str]:
    """Return the prefix that makes a command run on a host."""
    return ["ip", "netns", "exec", namespace(host)]


class HostsTakenError(Exception):
    """Another drill is running on this machine and uses the same host names."""


@contextmanager
def hosts() -> Generator[None]:
    """Create all hosts, and remove them at the end. Raises `HostsTakenError`."""
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
    """Kill all processes on the hosts and remove the hosts, even those that a killed drill left."""
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
    """Disconnect a host from all others, like an unplugged cable."""
    _ip("-n", _SWITCH, "link", "set", host, "down")


def plug_in(host: str) -> None:
    _ip("-n", _SWITCH, "link", "set", host, "up")


def part(host: str, *others: str) -> None:
    """Drop packets between a host and others, in both directions."""
    _filter("-A", host, others)


def join(host: str, *others: str) -> None:
    """Reverse `part` with the same arguments."""
    _filter("-D", host, others)


def processes(host: str) -> list[int]:
    return _processes(namespace(host))


def send(host: str, number: int, *spared_pids: int) -> None:
    """Send a signal to all processes on a host except `spared_pids`."""
    for process in set(processes(host)) - set(spared_pids):
        with suppress(ProcessLookupError):
            os.kill(process, number)


def _filter(change: str, host: str, others: tuple[str, ...]) -> None:
    for other in others:
        for place, sender in ((host, other), (other, host)):
            _run(*within(place), "iptables", change, "INPUT", "-s", address(sender), "-j", "DROP")


def _end_processes(name: str) -> None:
    for _ in range(_GONE_TRIES):
        remaining = [process for process in _processes(name) if process != os.getpid()]
        if not remaining:
            return
        for process in remaining:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)
                os.kill(process, signal.SIGKILL)
        time.sleep(_GONE_LOOK_S)


def _processes(name: str) -> list[int]:
    return [int(process) for process in _ip("netns", "pids", name).split()]


def _ip(*words: str) -> str:
    return _run("ip", *words)


def _run(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    if result.returncode != 0:
        raise OSError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout
