"""Warm-started processes behave like normally started processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.timeouts import PATIENCE_S

pytestmark = pytest.mark.full

_MODULE = """
import os, resource, sys, time
print(sys.argv[1:], os.getcwd(), os.environ.get("WORD"), sys.stdin.read(), flush=True)
print("why", file=sys.stderr, flush=True)
if sys.argv[1] == "wait":
    time.sleep(600)
if sys.argv[1] == "text":
    sys.exit("said at the end")
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "warm_example.py").write_text(_MODULE)
    return {"PYTHONPATH": str(tmp_path), "WORD": "bird", "PATH": os.environ["PATH"]}


def test_a_forked_command_has_its_own_arguments_environment_folder_and_streams(
    environment: dict[str, str], tmp_path: Path
) -> None:
    result = processes.run("warm_example", "3", env=environment, folder=tmp_path)
    assert (result.returncode, result.stderr) == (3, "why\n")
    assert result.stdout == f"['3'] {tmp_path} bird \n"


def test_a_forked_command_reports_exit_messages_and_tracebacks(
    environment: dict[str, str],
) -> None:
    result = processes.run("warm_example", "text", env=environment)
    assert (result.returncode, result.stderr) == (1, "why\nsaid at the end\n")
    result = processes.run("warm_example", "x", env=environment)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("ValueError: ")


def test_a_forked_command_can_be_killed_by_its_process_id(
    environment: dict[str, str], tmp_path: Path
) -> None:
    with (tmp_path / "log").open("wb") as log:
        process = processes.start("warm_example", "wait", env=environment, output=log)
    assert process.poll() is None
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert process.poll() == -signal.SIGKILL


_STARTS_AND_IS_KILLED = """
import os, signal, sys
from pathlib import Path
from tests.support import processes
with Path(os.devnull).open("wb") as nothing:
    process = processes.start("warm_example", "wait", env=dict(os.environ), output=nothing)
print(process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_forked_command_ends_with_its_test_process(environment: dict[str, str]) -> None:
    command = [sys.executable, "-c", _STARTS_AND_IS_KILLED]
    more = {"PYTHONPATH": f"{environment['PYTHONPATH']}:{Path.cwd()}"}
    killed = subprocess.run(
        command, env=os.environ | more, capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    deadline = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{killed.stdout.strip()}/exe").exists():
        assert time.monotonic() < deadline, "it runs on"
        time.sleep(0.02)
