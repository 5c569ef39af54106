"""The number of cores that this process may use."""

import os
from collections.abc import Iterator
from math import ceil
from pathlib import Path


def usable_cores(root: Path = Path("/")) -> int:
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min([affinity or 1, *(ceil(quota) for quota in _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    """Read the quotas of this process's cgroups and their parents, in cores."""
    mount = root / "sys/fs/cgroup"
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _v2_quotas(mount, path)
        elif "cpu" in controllers.split(","):
            yield from _v1_quotas(mount / "cpu", path)


def _v2_quotas(mount: Path, path: str) -> Iterator[float]:
    for folder in _folders(mount, path):
        quota, _, period = _read_text(folder / "cpu.max").partition(" ")  # quota may be `max`
        if quota.isdecimal() and period.strip().isdecimal():
            yield int(quota) / int(period)


def _v1_quotas(mount: Path, path: str) -> Iterator[float]:
    for folder in _folders(mount, path):
        quota = _read_text(folder / "cpu.cfs_quota_us").strip()  # -1: no quota
        period = _read_text(folder / "cpu.cfs_period_us").strip()
        if quota.isdecimal() and period.isdecimal():
            yield int(quota) / int(period)


def _folders(mount: Path, path: str) -> Iterator[Path]:
    yield mount
    folder = mount
    for part in Path(path.lstrip("/")).parts:
        folder /= part
        yield folder


def _read_text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
