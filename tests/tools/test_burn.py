"""The repeated test runs: their output, their logs, and the report of failed runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
#: Replaces pytest: prints the number of the parent's other child processes; fails in one run.
_SUITE = """
import os, pathlib, sys
folder, failing = pathlib.Path(sys.argv[1]), int(sys.argv[2])
beside = sum(
    path.read_text().rpartition(")")[2].split()[1] == str(os.getppid())
    for path in pathlib.Path("/proc").glob("[0-9]*/stat")
) - 1
number = len(list(folder.glob("run-*")))
folder.joinpath(f"run-{number}").touch()
red = number == failing
print(f"beside {beside}")
print("1 failed, 2 passed in 0.01s" if red else "3 passed in 0.01s")
sys.exit(int(red))
"""


def _burn(tmp_path: Path, failing: int, suite: str = _SUITE, **load: str) -> tuple[int, list[str]]:
    """Run `tools.burn` with one run per load; the run with this number fails."""
    command = [sys.executable, "-c", suite, str(tmp_path), str(failing)]
    result = subprocess.run(
        [sys.executable, "-m", "tools.burn", str(tmp_path / "logs"), *command],
        cwd=ROOT,
        env=os.environ | {"RUNS": "1", "LOAD": "quiet busy"} | load,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stderr == ""
    return result.returncode, result.stdout.splitlines()


@pytest.mark.parametrize(
    ("failing", "results"), [(0, ["RED", "green"]), (1, ["green", "RED"]), (2, ["green", "green"])]
)
def test_every_run_has_a_row_and_a_red_run_fails_the_command(
    tmp_path: Path, failing: int, results: list[str]
) -> None:
    status, (head, line, *rows, last) = _burn(tmp_path, failing)
    assert (head, set(line)) == ("| machine | run | result | time | pytest |", set("|-"))
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[:3] for row in cells] == [["quiet", "1", results[0]], ["busy", "1", results[1]]]
    ends = {"green": "3 passed in 0.01s", "RED": "1 failed, 2 passed in 0.01s"}
    assert [row[4] for row in cells] == [ends[result] for result in results]
    green = results.count("green")
    assert last == f"{green} of 2 runs were green"
    assert status == (0 if green == 2 else 1)


def test_the_output_of_each_run_is_stored_and_busy_runs_load_every_core(tmp_path: Path) -> None:
    _burn(tmp_path, failing=1)
    logs = {path.name: path.read_text().splitlines() for path in (tmp_path / "logs").iterdir()}
    assert logs == {
        "quiet-1.log": ["beside 0", "3 passed in 0.01s"],
        "busy-1.log": [f"beside {os.cpu_count()}", "1 failed, 2 passed in 0.01s"],
    }


def test_a_single_load_can_be_requested(tmp_path: Path) -> None:
    _, (_, _, row, last) = _burn(tmp_path, failing=1, LOAD="busy")
    assert row.startswith("| busy | 1 | green |")
    assert last == "1 of 1 runs were green"


def test_a_run_without_a_summary_line_is_not_green(tmp_path: Path) -> None:
    status, (_, _, row, _) = _burn(tmp_path, failing=1, suite="", LOAD="quiet")
    assert row.startswith("| quiet | 1 | RED |")
    assert status == 1
