"""Ports for the servers that tests start. No two test processes on a machine get the same port.

All ports are below the system's ephemeral ports, because a connection could take an ephemeral port
before a server listens on it.
"""

import fcntl
import os
import secrets
import socket
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

#: Browsers block port 10,080.
FREE_PORTS = range(10_081, 20_000)
SANDBOX_BASES = range(20_000, 30_000, 20)
SANDBOX_PORTS = 11  # consecutive ports of a sandbox, starting at its base
_reserved_ports = set[int]()


def free_port() -> int:
    """Reserve a port on which no process listens."""
    return _reserve_any(FREE_PORTS, 1)


def free_port_base() -> int:
    """Reserve the consecutive ports of a sandbox; return the first port."""
    return _reserve_any(SANDBOX_BASES, SANDBOX_PORTS)


def reserve_ports(first: int, count: int = 1) -> bool:
    """Reserve consecutive ports until this process ends. Returns False if a port is not free.

    Each port is a byte of a file, on which the process holds a record lock (fcntl(2)). Without
    the lock, another test process could take the port before the server starts.
    """
    ports = range(first, first + count)
    if not _reserved_ports.isdisjoint(ports):
        return False
    with suppress(BlockingIOError, PermissionError):
        fcntl.lockf(_open_lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, count, first)
        if all(is_free(port) for port in ports):
            _reserved_ports.update(ports)
            return True
    return False


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _reserve_any(candidates: Sequence[int], count: int) -> int:
    start = secrets.randbelow(len(candidates))  # test processes share the seed of `random`
    for first in (*candidates[start:], *candidates[:start]):
        if reserve_ports(first, count):
            return first
    raise AssertionError("no free port")


@cache
def _open_lock_file() -> int:
    path = f"{tempfile.gettempdir()}/payintent-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
