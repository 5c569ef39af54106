"""`make drill-restart`: two API processes behind nginx are restarted in turn, under load."""

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
from payintent_sandbox.chains.dev_chains import DevChains
from payintent_sandbox.installation import SandboxInstallation, prepare_installation
from payintent_sandbox.postgres import Postgres
from tests.support.proxy import NAME, proxied
from tests.support.world import free_port

_BETWEEN_S = 1.0  # from one that is ready to the end of the next
_REQUESTS_MAX = 200_000


@dataclass(frozen=True, slots=True)
class Restart:
    """One restart of one process; times are of the monotonic clock."""

    process: str
    began: float
    ended: float  # the process is gone
    ready: float


async def restart_in_turn(programs: Sequence[Program], count: int) -> list[Restart]:
    """End a process and start it again, one after the other, so many times in all."""
    done: list[Restart] = []
    for number in range(count):
        program = programs[number % len(programs)]
        began = time.monotonic()
        await program.stop()
        ended = time.monotonic()
        await program.start()
        done.append(Restart(program.name, began, ended, time.monotonic()))
        await asyncio.sleep(_BETWEEN_S)
    return done


async def drill(
    load: Load, programs: Sequence[Program], count: int
) -> tuple[list[Restart], list[Call]]:
    """Restart processes under a load; gives what was done, and every request."""
    async with asyncio.TaskGroup() as work:
        running = work.create_task(load.run())
        await asyncio.sleep(_BETWEEN_S)
        try:
            done = await restart_in_turn(programs, count)
        finally:
            load.stop()
        await running
    return done, load.calls


def table(done: Sequence[Restart], calls: Sequence[Call]) -> Table:
    """Show each restart with the requests that were due from its beginning to the next one's."""
    shown = Table(title="Rolling restart behind deploy/nginx.conf")
    for name in ("restart of", "gone after", "ready after", "requests", "2xx", "lost", "slowest"):
        shown.add_column(name, justify="left" if name == "restart of" else "right")
    began = [restart.began for restart in done]
    for restart, end in zip(done, [*began[1:], float("inf")], strict=True):
        due = [call for call in calls if restart.began <= call.due < end]
        gone, ready = restart.ended - restart.began, restart.ready - restart.began
        shown.add_row(restart.process, f"{gone:.1f} s", f"{ready:.1f} s", *_figures(due))
    shown.add_section()
    shown.add_row("all", "", "", *_figures(calls))
    return shown


def _figures(calls: Sequence[Call]) -> tuple[str, ...]:
    fine = sum(call.is_ok for call in calls)
    slowest = max((call.seconds for call in calls), default=0.0)
    return f"{len(calls):,}", f"{fine:,}", f"{len(calls) - fine:,}", f"{slowest * 1000:,.0f} ms"


def _programs(world: SandboxInstallation, folder: Path, ports: Sequence[int]) -> list[Program]:
    environment = world.service_environment()
    del environment["PAYINTENT_DRAIN_S"]  # as in production
    return [api_program(number, port, environment, folder) for number, port in enumerate(ports, 1)]


async def _run(options: argparse.Namespace, folder: Path, console: Console) -> bool:
    postgres = Postgres(folder / "postgres")
    url = postgres.start()
    try:
        world = await prepare_installation(folder, free_ports(), url, DevChains(folder, (0, 0, 0)))
        ports = [free_port() for _ in range(2)]
        programs = _programs(world, folder, ports)
        for program in programs:
            await program.start()
        try:
            async with proxied(*ports, folder=folder) as (base, trusting):
                target = Target("127.0.0.1", int(base.rpartition(":")[2]), trusting, NAME)
                key = world.kept["merchants"][0]["api_key"]
                load = Load(target, key, options.rate, _REQUESTS_MAX)
                done, calls = await drill(load, programs, options.restarts)
        finally:
            for program in programs:
                await program.stop()
    finally:
        postgres.stop()
    console.print(table(done, calls))
    for kind, count in failures(calls).most_common():
        console.print(f"{kind}: {count}")
    return all(call.is_ok for call in calls)


def main() -> None:
    """Run the drill; ends with 1 where a request was lost."""
    parser = argparse.ArgumentParser(prog="make drill-restart")
    parser.add_argument("--rate", type=float, default=100.0, help="requests a second")
    parser.add_argument("--restarts", type=int, default=6, help="in all, of two processes")
    options = parser.parse_args()
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="drill-restart-", dir=var_dir) as folder:
        Path(folder).chmod(0o711)  # so that the database's own user can reach its data
        console = Console(width=100)
        console.print(f"{options.rate:g} requests a second, {options.restarts} restarts")
        sys.exit(0 if asyncio.run(_run(options, Path(folder), console)) else 1)


if __name__ == "__main__":
    main()
