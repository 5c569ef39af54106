"""Run the tests of `make test` repeatedly, on idle and on busy cores, and print a table.

`python -m tools.burn` runs them five times under each load. `RUNS=2` changes the number of runs,
and `LOAD=busy` selects a load. The logs are stored in `var/burn/`. If a run fails, the exit status
is 1.
"""

import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

RUNS = 5
RUN_TIMEOUT_S = 3600
_SUMMARY = re.compile(r"^\d+ (passed|failed|error).* in [\d.]+s.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the suite: whether it was green, pytest's summary line, and the duration."""

    load: str
    green: bool
    summary: str
    duration_s: float


def main(runs: int, loads: list[str], logs: Path, command: list[str]) -> int:
    """Run `command` `runs` times under each load, and return the exit status."""
    logs.mkdir(parents=True, exist_ok=True)
    results: list[Run] = []
    print("| machine | run | result | time | pytest |\n|---|---|---|---|---|", flush=True)
    for load in loads:
        with _MACHINES[load]():
            for number in range(1, runs + 1):
                log = logs / f"{load}-{number}.log"
                results.append(_run(load, log, command))
                print(_row(number, results[-1]), flush=True)
    print(f"{sum(run.green for run in results)} of {len(results)} runs were green")
    return 0 if all(run.green for run in results) else 1


def _run(load: str, log: Path, command: list[str]) -> Run:
    begun = time.monotonic()
    with log.open("w") as out:
        status = subprocess.run(  # noqa: S603
            command, stdout=out, stderr=subprocess.STDOUT, timeout=RUN_TIMEOUT_S, check=False
        ).returncode
    lines = list(_SUMMARY.finditer(log.read_text()))
    summary = lines[-1].group() if lines else "no summary line"
    return Run(load, status == 0 and bool(lines), summary, time.monotonic() - begun)


def _row(number: int, run: Run) -> str:
    verdict = "green" if run.green else "RED"
    return f"| {run.load} | {number} | {verdict} | {run.duration_s:.0f} s | {run.summary} |"


@contextmanager
def _busy() -> Iterator[None]:
    """Keep every core busy while the block runs."""
    cores = os.cpu_count() or 1
    burners = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(cores)]
    for burner in burners:
        burner.start()
    try:
        yield
    finally:
        for burner in burners:
            burner.terminate()


def _burn() -> None:
    while os.getppid() != 1:
        sum(range(1_000_000))


_MACHINES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "quiet": nullcontext,
    "busy": _busy,
}

if __name__ == "__main__":
    loads = os.environ.get("LOAD", " ".join(_MACHINES)).split()
    var_dir = os.environ.get("VAR_DIR", "var")
    logs, *command = sys.argv[1:] or (f"{var_dir}/burn", "make", "test")
    sys.exit(main(int(os.environ.get("RUNS", RUNS)), loads, Path(logs), command))
