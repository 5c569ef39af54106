"""`python -m drills.restart` restarts API processes under load.

First, two APIs behind nginx are restarted in turn. Then SIGHUP replaces a
supervisor's processes, to which clients connect directly.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.installation import free_ports
from drills.client import Target
from drills.load import Call, Load, failures
from drills.processes import Program, api_program
from drills.roll import both_kinds, drill_roll, supervised_program
from drills.roll import table as roll_table
from drills.summary import BETWEEN_S, FIGURES, figures, figures_of_each
from payintent_sandbox.chains.dev_chains import DevChains
from payintent_sandbox.installation import SandboxInstallation, prepare_installation
from payintent_sandbox.postgres import Postgres
from tests.support.ports import free_port
from tests.support.proxy import NAME, run_proxy

_REQUESTS_MAX = 200_000


@dataclass(frozen=True, slots=True)
class Restart:
    """A restart of a process. Times are from the monotonic clock."""

    process: str
    began: float
    ended: float  # the process has exited
    ready: float


async def restart_in_turn(programs: Sequence[Program], count: int) -> list[Restart]:
    """Restart the programs in turn, `count` times in total."""
    restarts: list[Restart] = []
    for number in range(count):
        program = programs[number % len(programs)]
        began = time.monotonic()
        await program.stop()
        ended = time.monotonic()
        await program.start()
        restarts.append(Restart(program.name, began, ended, time.monotonic()))
        await asyncio.sleep(BETWEEN_S)
    return restarts


async def drill(
    load: Load, programs: Sequence[Program], count: int
) -> tuple[list[Restart], list[Call]]:
    """Restart programs under load, and return the restarts and all requests."""
    async with asyncio.TaskGroup() as work:
        running = work.create_task(load.run())
        await asyncio.sleep(BETWEEN_S)
        try:
            restarts = await restart_in_turn(programs, count)
        finally:
            load.stop()
        await running
    return restarts, load.calls


def table(restarts: Sequence[Restart], calls: Sequence[Call]) -> Table:
    """Return a table with each restart and the requests that were due before the next restart."""
    rendered = Table(title="Rolling restart behind deploy/nginx.conf")
    for name in ("restart of", "stopped after", "ready after", *FIGURES):
        rendered.add_column(name, justify="left" if name == "restart of" else "right")
    each = figures_of_each([restart.began for restart in restarts], calls)
    for restart, due in zip(restarts, each, strict=True):
        gone, ready = restart.ended - restart.began, restart.ready - restart.began
        rendered.add_row(restart.process, f"{gone:.1f} s", f"{ready:.1f} s", *due)
    rendered.add_section()
    rendered.add_row("all", "", "", *figures(calls))
    return rendered


def _environment(world: SandboxInstallation) -> dict[str, str]:
    environment = world.service_environment()
    del environment["PAYINTENT_DRAIN_S"]  # as in production
    return environment


async def _run(options: argparse.Namespace, folder: Path, console: Console) -> bool:
    postgres = Postgres(folder / "postgres")
    url = postgres.start()
    try:
        world = await prepare_installation(folder, free_ports(), url, DevChains(folder, (0, 0, 0)))
        calls = [
            *await _restart_behind_nginx(world, options, folder, console),
            *await _roll_without_proxy(world, options, folder, console),
        ]
    finally:
        postgres.stop()
    for kind, count in failures(calls).most_common():
        console.print(f"{kind}: {count}")
    return all(call.is_ok for call in calls)


async def _restart_behind_nginx(
    world: SandboxInstallation, options: argparse.Namespace, folder: Path, console: Console
) -> list[Call]:
    ports = [free_port() for _ in range(2)]
    programs = [
        api_program(number, port, _environment(world), folder)
        for number, port in enumerate(ports, 1)
    ]
    try:
        for program in programs:
            await program.start()
        async with run_proxy(*ports, folder=folder) as (base, trusting):
            target = Target("127.0.0.1", int(base.rpartition(":")[2]), trusting, NAME)
            restarts, calls = await drill(_load(world, target, options), programs, options.restarts)
    finally:
        for program in programs:
            await program.stop()
    console.print(table(restarts, calls))
    return calls


async def _roll_without_proxy(
    world: SandboxInstallation, options: argparse.Namespace, folder: Path, console: Console
) -> list[Call]:
    port = free_port()
    program = supervised_program(port, _environment(world), folder)
    try:
        await program.start()
        load = _load(world, Target("127.0.0.1", port), options)
        rolls, calls = await drill_roll(program, both_kinds(load), options.rolls)
    finally:
        await program.stop()
    console.print(roll_table(rolls, calls))
    return calls


def _load(world: SandboxInstallation, target: Target, options: argparse.Namespace) -> Load:
    return Load(target, world.kept["merchants"][0]["api_key"], options.rate, _REQUESTS_MAX)


def main() -> None:
    """Run the drill. The exit status is 1 if a request failed."""
    parser = argparse.ArgumentParser(prog="python -m drills.restart")
    parser.add_argument("--rate", type=float, default=100.0, help="requests per second")
    parser.add_argument("--restarts", type=int, default=6, help="total restarts of the two APIs")
    parser.add_argument("--rolls", type=int, default=3, help="SIGHUP reloads of all processes")
    options = parser.parse_args()
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="drill-restart-", dir=var_dir) as folder:
        Path(folder).chmod(0o711)  # so that the database's user can access the data
        console = Console(width=100)
        console.print(f"{options.rate:g} requests per second")
        sys.exit(0 if asyncio.run(_run(options, Path(folder), console)) else 1)


if __name__ == "__main__":
    main()
