"""How many cores this process may use."""

import os
from collections.abc import Iterator
from math import ceil
from pathlib import Path


def usable_cores(root: Path = Path("/")) -> int:
    """Count the cores that this process may use: by its affinity and its cgroups' quotas."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min([affinity or 1, *(ceil(quota) for quota in _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    """Read the quotas of this process's cgroups, in cores; a container sees its own as the top."""
    mounted = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _quotas_of(mounted, path)
        elif "cpu" in controllers.split(","):
            yield from _old_quotas_of(mounted / "cpu", path)


def _quotas_of(mounted: Path, path: str) -> Iterator[float]:
    """Read `cpu.max` of a cgroup and of those above it: quota and period, or `max`."""
    for folder in _folders(mounted, path):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if quota.isdecimal() and period.strip().isdecimal():
            yield int(quota) / int(period)


def _old_quotas_of(mounted: Path, path: str) -> Iterator[float]:
    """Read the same of cgroups of version 1; a quota of -1 is none."""
    for folder in _folders(mounted, path):
        quota = _read(folder / "cpu.cfs_quota_us").strip()
        period = _read(folder / "cpu.cfs_period_us").strip()
        if quota.isdecimal() and period.isdecimal():
            yield int(quota) / int(period)


def _folders(mounted: Path, path: str) -> Iterator[Path]:
    yield mounted
    folder = mounted
    for part in Path(path.lstrip("/")).parts:
        folder /= part
        yield folder


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
