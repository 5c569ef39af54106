"""The bench of cells runs from start to end, also where no control group can be made."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.host_cores import HostCoresError, held_to

pytestmark = pytest.mark.long

RATIOS = ["ratio, as many clients for a cell", "ratio, as many clients together"]


def run_quick(var_dir: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bench.cells", "--quick", "--clients", "4"],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"VAR_DIR": str(var_dir)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def can_hold() -> bool:
    """Tell whether this machine lets us hold a process to a part of a core."""
    try:
        with held_to(1.0, "probe", os.getpid()):
            return True
    except HostCoresError:
        return False


@pytest.mark.e2e
def test_a_quick_run_prints_both_tables_or_why_there_is_one(tmp_path: Path) -> None:
    printed = run_quick(tmp_path)
    shared, _, held = printed.partition("each server has 0.2 of a core")
    assert all(ratio in shared for ratio in RATIOS)
    if can_hold():
        assert all(ratio in held for ratio in RATIOS)
    else:
        assert "not measured with servers held to 0.2 of a core: no " in printed
