"""Use SIGHUP to replace a supervisor's processes, under load and without a proxy."""

import asyncio
import json
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from drills.load import Call, Load
from drills.processes import NotReadyError, Program, payintent
from drills.summary import BETWEEN_S, FIGURES, figures, figures_of_each

_LOOK_S = 0.05
_ROLL_S = 120.0  # for a busy machine
_PROCESSES = 2
#: Like proxies and libraries, close idle connections a few seconds before the drain ends.
_IDLE_MAX_S = 2.0
_DONE, _FAILED = "roll_done", "roll_failed"


@dataclass(frozen=True, slots=True)
class Roll:
    """A reload by SIGHUP. Times are from the monotonic clock."""

    began: float
    ended: float  # all processes have been replaced


def supervised_program(port: int, environment: Mapping[str, str], folder: Path) -> Program:
    """Return an API whose supervisor runs two processes."""
    command = payintent("api", "--processes", str(_PROCESSES), "--port", str(port))
    ready_url = f"http://127.0.0.1:{port}/readyz"
    return Program("supervisor", command, environment, folder, ready_url)


async def roll(program: Program, count: int) -> list[Roll]:
    """Replace all processes of a supervisor `count` times. Raises `NotReadyError`."""
    finished: list[Roll] = []
    for _ in range(count):
        rolls, before = len(_logged(program, _DONE)), await _processes(program)
        began = time.monotonic()
        assert program.process is not None  # noqa: S101 - the drill has started the program
        program.process.send_signal(signal.SIGHUP)
        await _until_rolled(program, rolls + 1)
        finished.append(Roll(began, time.monotonic()))
        if before & await _processes(program):
            raise NotReadyError("a process from before SIGHUP is still running")
        await asyncio.sleep(BETWEEN_S)
    return finished


async def drill_roll(
    program: Program, loads: Sequence[Load], count: int
) -> tuple[list[Roll], list[Call]]:
    """Reload the processes under load, and return the reloads and all requests."""
    async with asyncio.TaskGroup() as work:
        running = [work.create_task(load.run()) for load in loads]
        await asyncio.sleep(BETWEEN_S)
        try:
            rolls = await roll(program, count)
        finally:
            for load in loads:
                load.stop()
        await asyncio.gather(*running)
    return rolls, [call for load in loads for call in load.calls]


def table(rolls: Sequence[Roll], calls: Sequence[Call]) -> Table:
    """Return a table with each reload and the requests that were due before the next reload."""
    rendered = Table(title=f"SIGHUP reload of {_PROCESSES} processes, without a proxy")
    for name in ("SIGHUP", "all replaced after", *FIGURES):
        rendered.add_column(name, justify="right")
    each = figures_of_each([item.began for item in rolls], calls)
    for number, (one, due) in enumerate(zip(rolls, each, strict=True), 1):
        rendered.add_row(str(number), f"{one.ended - one.began:.1f} s", *due)
    rendered.add_section()
    rendered.add_row("all", "", *figures(calls))
    return rendered


def both_kinds(load: Load) -> list[Load]:
    """Split a load: one half reuses connections, the other half opens one for each request."""
    halves = (_IDLE_MAX_S, 0.0)
    return [
        Load(
            load.target,
            load.api_key,
            load.per_s / len(halves),
            load.requests_max // len(halves),
            load.timeout_s,
            idle_max_s=idle_max_s,
        )
        for idle_max_s in halves
    ]


async def _until_rolled(program: Program, count: int) -> None:
    failed = len(_logged(program, _FAILED))
    deadline = time.monotonic() + _ROLL_S
    while time.monotonic() < deadline:
        if len(_logged(program, _DONE)) >= count:
            return
        if len(_logged(program, _FAILED)) > failed:
            break
        await asyncio.sleep(_LOOK_S)
    raise NotReadyError(f"the processes were not replaced\n{program.log.read_text()[-2_000:]}")


async def _processes(program: Program) -> set[int]:
    """Wait until all processes of the supervisor are running, and return their IDs."""
    assert program.process is not None  # noqa: S101 - the drill has started the program
    of = program.process.pid
    deadline = time.monotonic() + _ROLL_S
    while time.monotonic() < deadline:
        children = _children(of)
        if len(children) == _PROCESSES:
            return children
        await asyncio.sleep(_LOOK_S)
    raise NotReadyError(f"the supervisor does not have {_PROCESSES} processes")


def _children(pid: int) -> set[int]:
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def _logged(program: Program, event: str) -> list[str]:
    """Return the complete log lines of an event."""
    lines = program.log.read_text(errors="replace").splitlines()
    whole = [line for line in lines if line.startswith("{") and line.endswith("}")]
    return [line for line in whole if json.loads(line).get("event") == event]
