"""The number of usable cores: containers and units have quotas in addition to the CPU affinity."""

import os
from pathlib import Path

import pytest

from payintent.runtime.processes.child import compute_restart_wait_s, count_usable_cores

_MANY = set(range(64))


@pytest.fixture(autouse=True)
def many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: _MANY, raising=False)


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 64),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 64),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "10000 100000\n"}, 1),
        (
            {
                "proc/self/cgroup": "0::/system.slice/payintent.service\n",
                "sys/fs/cgroup/system.slice/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/system.slice/payintent.service/cpu.max": "800000 100000\n",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/docker/1\n1:name=systemd:/docker/1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            64,
        ),
    ],
)
def test_the_smallest_quota_limits_the_number_of_cores(
    tmp_path: Path, files: dict[str, str], cores: int
) -> None:
    assert count_usable_cores(_write(tmp_path, files)) == cores


def test_restart_delays_grow_up_to_a_maximum_with_jitter() -> None:
    for failures in range(1, 200):
        waits = {compute_restart_wait_s(failures) for _ in range(20)}
        assert len(waits) > 1
        assert min(waits) >= 0.1
        assert max(waits) <= 30.0
    assert max(compute_restart_wait_s(1) for _ in range(20)) <= 0.2
    assert min(compute_restart_wait_s(50) for _ in range(20)) >= 15.0
