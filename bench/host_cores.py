"""Hold a database server to a number of cores, as if it had a small host of its own (cgroups(7)).

Linux lets root set a quota of processor time for a group of processes. Both versions of control
groups are known here; where neither can be written to, `HostCoresError` says so.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PERIOD_US = 10_000  # short, so that a server that has used its quota waits for moments only


class HostCoresError(Exception):
    """This machine lets nobody set a quota here; the message says why."""


@contextlib.contextmanager
def held_to(cores: float, name: str, postmaster_pid: int) -> Iterator[None]:
    """Give a PostgreSQL server, with all that it forks, at most so many cores meanwhile."""
    parent, quota = _controller()
    group = parent / f"payintent-bench-{os.getpid()}-{name}"
    try:
        group.mkdir()
    except OSError as error:
        raise HostCoresError(f"no group can be made: {error}") from error
    try:
        try:
            _write_quota(group, quota, int(cores * _PERIOD_US))
        except OSError as error:
            raise HostCoresError(f"no quota can be set: {error}") from error
        _put(group, [postmaster_pid])  # first: what it forks from now on is in the group by itself
        _put(group, _children(postmaster_pid))
        yield
    finally:
        _put(parent, map(int, _words(group / "cgroup.procs")))
        group.rmdir()


def postmaster_of(data_dir: Path) -> int:
    """Read which process serves this folder: the first line of postmaster.pid is its number."""
    return int((data_dir / "postmaster.pid").read_text().split("\n", 1)[0])


def _controller() -> tuple[Path, str]:
    """Give the folder where groups are made, and the file of a group's quota."""
    if (_ROOT / "cpu" / "cgroup.procs").exists():
        return _ROOT / "cpu", "cpu.cfs_quota_us"
    if "cpu" in _words(_ROOT / "cgroup.subtree_control"):
        return _ROOT, "cpu.max"
    raise HostCoresError("no controller of processor time is mounted at /sys/fs/cgroup")


def _write_quota(group: Path, file: str, quota_us: int) -> None:
    if file == "cpu.max":
        (group / file).write_text(f"{quota_us} {_PERIOD_US}")
        return
    (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
    (group / file).write_text(str(quota_us))


def _children(pid: int) -> Iterator[int]:
    return map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def _put(group: Path, pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # a backend may end at any time
            (group / "cgroup.procs").write_text(str(pid))


def _words(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []
