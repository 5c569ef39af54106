"""`python -m bench.flat`: what each operation costs where there are few payments, and many.

A database for each number of payments, filled by `payintent seed`, in one PostgreSQL. Rounds visit
them in turns, so that a slow moment of the machine slows all alike, and medians are compared.
PostgreSQL's processor time is that of the connections of each database.
"""

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import uvloop
from rich.console import Console
from rich.table import Table

from bench.flat_work import OPERATIONS, AcceptingGateway, Work
from payintent.cli.progress import show_progress
from payintent.config import Settings
from payintent.service import open_service
from payintent.storage import migrations_runner
from payintent_sandbox.postgres import Postgres
from payintent_sandbox.seed.history import seed

SIZES = (1_000, 100_000, 1_000_000)
GOAL = 1.2  # times what it takes among the fewest payments
_ROUNDS, _WARM_UP = 24, 4
_DAYS = 90
_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="  # of the benchmark's own databases
PIDS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one operation took: seconds until its answer, and PostgreSQL's processor time."""

    waited_us: float
    database_us: float


@dataclass(slots=True)
class Place:
    """A database with so many payments, and what was measured in it."""

    rows: int
    work: Work
    watcher: asyncpg.Connection
    costs: dict[str, list[Cost]] = field(default_factory=lambda: {name: [] for name in OPERATIONS})

    async def measure(self, name: str, *, kept: bool) -> None:
        """Do one operation some times in a row."""
        operation: Callable[[Work], Awaitable[int]] = OPERATIONS[name]
        pids = [row["pid"] for row in await self.watcher.fetch(PIDS)]
        before, began = cpu_us(pids), time.perf_counter()
        count = await operation(self.work)
        waited = time.perf_counter() - began
        spent = cpu_us(pids) - before
        if kept:
            self.costs[name].append(Cost(waited / count * 1e6, spent / count))

    def median(self, name: str, of: str) -> float:
        """Return the median of all rounds, in microseconds."""
        return statistics.median(getattr(cost, of) for cost in self.costs[name])


def cpu_us(pids: Sequence[int]) -> float:
    """Read the processor time of processes (schedstat: nanoseconds on a core come first)."""
    return sum(_on_core_ns(pid) for pid in pids) / 1000


def _on_core_ns(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    except OSError:  # it has ended
        return 0


def _settings(url: str) -> Settings:
    chosen: dict[str, Any] = {"database_url": url, "pepper": _KEY, "keyring": f"bench:{_KEY}"}
    return Settings.model_validate(chosen | {"sandbox": True})


async def _open(server_url: str, rows: int) -> Place:
    """Make a database with so many payments, and open a service on it."""
    name = f"payments_{rows}"
    server = await asyncpg.connect(server_url)
    await server.execute(f"CREATE DATABASE {name}")
    await server.close()
    url = urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    await migrations_runner.migrate(url)
    service = await open_service(_settings(url))
    began = time.monotonic()
    with show_progress("writing payments", rows) as advance:
        await seed(service, rows, _DAYS, advance)
    watcher = await asyncpg.connect(url)
    size = await watcher.fetchval("SELECT pg_database_size(current_database())")
    took = time.monotonic() - began
    print(f"{rows:,} payments in {took:.0f} s: {rows / took:,.0f}/s, {size / rows:,.0f} bytes each")
    await service.close()
    gateways = {"simulator": AcceptingGateway()}
    work = await Work.open(await open_service(_settings(url), gateways), random.Random(13))
    return Place(rows=rows, work=work, watcher=watcher)


async def _measure(url: str, sizes: Sequence[int], rounds: int) -> list[Place]:
    places = [await _open(url, rows) for rows in sizes]
    for number in range(rounds + _WARM_UP):
        for name in OPERATIONS:
            order = random.sample(places, len(places))  # none is always the first
            for place in order:
                await place.measure(name, kept=number >= _WARM_UP)
    for place in places:
        await place.work.close()
        await place.watcher.close()
    return places


def table(places: Sequence[Place], of: str, title: str) -> Table:
    """Show each operation's medians, and how many times the least the most of them is."""
    shown = Table(title=title)
    shown.add_column("", no_wrap=True)
    for place in places:
        shown.add_column(f"{place.rows:,}", justify="right")
    shown.add_column(f"most / fewest payments, goal {GOAL}", justify="right")
    for name in OPERATIONS:
        figures = [place.median(name, of) for place in places]
        ratio = figures[-1] / figures[0]
        missed = "" if ratio <= GOAL else " missed"
        shown.add_row(name, *(f"{one:,.0f} us" for one in figures), f"{ratio:.2f}{missed}")
    return shown


def measure(var_dir: Path, sizes: Sequence[int], rounds: int = _ROUNDS) -> list[Place]:
    """Measure on databases of its own. They do not wait for the disk, which would hide the rest."""
    folder = Path(tempfile.mkdtemp(prefix="bench-flat-", dir=var_dir))
    folder.chmod(0o711)  # so that the server's own user can reach its data
    postgres = Postgres(folder / "postgres", durable=False)
    try:
        return uvloop.run(_measure(postgres.start(), sizes, rounds))
    finally:
        postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.flat", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke of moments, no figures")
    quick = parser.parse_args().quick
    most = int(os.environ.get("PAYMENTS", SIZES[-1]))
    sizes = (100, 200) if quick else tuple(sorted({*SIZES[:-1], most}))
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    places = measure(var_dir, sizes, 2 if quick else _ROUNDS)
    console = Console(width=110)
    console.print(table(places, "database_us", "processor time of PostgreSQL for each"))
    console.print(table(places, "waited_us", "time until the answer, one after the other"))


if __name__ == "__main__":
    main()
