"""`python -m bench.flat`: compare the cost of each operation with few and with many payments.

A PostgreSQL server has a database for each number of payments, filled by `payintent seed`. Each
round measures all databases, so that a temporary slowdown affects all of them, and the medians are
compared. PostgreSQL's processor time is the total for the database's server processes.
"""

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import uvloop
from rich.console import Console
from rich.table import Table

from bench.flat_fill import multiply
from bench.flat_work import OPERATIONS, AcceptingGateway, Work
from bench.machine import print_machine
from payintent.cli.common import show_progress
from payintent.db import migrations_runner
from payintent.runtime.settings import Settings
from payintent.service import open_service
from payintent_sandbox.postgres import Postgres
from payintent_sandbox.seed.history import seed

SIZES = (1_000, 100_000, 1_000_000)
GOAL = 1.2  # maximum ratio to the cost with the fewest payments
_ROUNDS, _WARM_UP = 24, 4
_DAYS = 90
_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="  # for the benchmark's databases
_PART = 100_000  # larger databases consist of copies of a database of this size
_JOBS = 8
_BUFFERS = ("128MB", "4GB")
#: The server is temporary, so its write-ahead log can be minimal.
_SETTINGS = {"wal_level": "minimal", "max_wal_senders": "0", "max_wal_size": "4GB"}
PIDS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of an operation: microseconds until its result, and PostgreSQL's processor time."""

    waited_us: float
    database_us: float


@dataclass(slots=True)
class Place:
    """A database with `rows` payments, and its measurements."""

    rows: int
    work: Work
    watcher: asyncpg.Connection
    costs: dict[str, list[Cost]] = field(default_factory=lambda: {name: [] for name in OPERATIONS})

    async def measure(
        self, name: str, operation: Callable[[Work], Awaitable[int]], *, is_stored: bool
    ) -> None:
        """Run an operation several times, and store its average cost if `is_stored`."""
        pids = [row["pid"] for row in await self.watcher.fetch(PIDS)]
        before, began = cpu_us(pids), time.perf_counter()
        count = await operation(self.work)
        waited = time.perf_counter() - began
        spent = cpu_us(pids) - before
        if is_stored:
            self.costs[name].append(Cost(waited / count * 1e6, spent / count))

    async def close(self) -> None:
        """Close the service and the monitoring connection."""
        await self.work.close()
        await self.watcher.close()

    def median(self, name: str, of: str) -> float:
        """Return the median of all rounds, in microseconds."""
        return statistics.median(getattr(cost, of) for cost in self.costs[name])


def cpu_us(pids: Sequence[int]) -> float:
    """Read the processor time of processes, which is the first number in schedstat."""
    return sum(_on_core_ns(pid) for pid in pids) / 1000


def _on_core_ns(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    except OSError:  # the process has ended
        return 0


def _settings(url: str) -> Settings:
    values: dict[str, Any] = {"database_url": url, "pepper": _KEY, "keyring": f"bench:{_KEY}"}
    return Settings.model_validate(values | {"sandbox": True})


async def _fill(server_url: str, rows: int) -> None:
    """Create a database with this many payments."""
    server = await asyncpg.connect(server_url)
    await server.execute("ALTER SYSTEM SET autovacuum = off")
    await server.execute("SELECT pg_reload_conf()")
    began = time.monotonic()
    copies = rows // _PART if rows % _PART == 0 else 1
    if copies > 1:
        part = f"{_name(_PART)} STRATEGY file_copy"
        await server.execute(f"CREATE DATABASE {_name(rows)} TEMPLATE {part}")
        await multiply(database_url(server_url, _name(rows)), copies, _JOBS)
    else:
        await server.execute(f"CREATE DATABASE {_name(rows)}")
        await seed_database(database_url(server_url, _name(rows)), rows)
    took = time.monotonic() - began
    print(f"{rows:,} payments in {took:.0f} s: {rows / took:,.0f}/s")
    await server.execute("ALTER SYSTEM RESET autovacuum")
    await server.execute("SELECT pg_reload_conf()")
    await server.close()


async def seed_database(url: str, rows: int) -> None:
    """Write a history of this many payments into an empty database."""
    await migrations_runner.migrate(url)
    service = await open_service(_settings(url))
    with show_progress("writing payments", rows) as advance:
        await seed(service, rows, _DAYS, advance)
    await service.close()


async def open_place(url: str, rows: int) -> Place:
    """Open a service on a filled database."""
    watcher = await asyncpg.connect(url)
    gateways = {"simulator": AcceptingGateway()}
    service = await open_service(_settings(url), gateways)
    work = await Work.open(service, watcher, random.Random(13))
    return Place(rows=rows, work=work, watcher=watcher)


def _name(rows: int) -> str:
    return f"payments_{rows}"


def database_url(server_url: str, name: str) -> str:
    """Return the URL of another database on the server."""
    return urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))


async def _measure(url: str, sizes: Sequence[int], rounds: int) -> list[Place]:
    places = [await open_place(database_url(url, _name(rows)), rows) for rows in sizes]
    for number in range(rounds + _WARM_UP):
        for name, operation in OPERATIONS.items():
            order = random.sample(places, len(places))  # so that no database is always first
            for place in order:
                await place.measure(name, operation, is_stored=number >= _WARM_UP)
    for place in places:
        await place.close()
    return places


def table(places: Sequence[Place], of: str, title: str) -> Table:
    """Return each operation's medians, and the ratio between the largest and smallest databases."""
    rendered = Table(title=title)
    rendered.add_column("", no_wrap=True)
    for place in places:
        rendered.add_column(f"{place.rows:,}", justify="right")
    rendered.add_column(f"most / fewest payments, goal {GOAL}", justify="right")
    for name in OPERATIONS:
        figures = [place.median(name, of) for place in places]
        ratio = figures[-1] / figures[0]
        missed = "" if ratio <= GOAL else " missed"
        rendered.add_row(name, *(f"{figure:,.0f} us" for figure in figures), f"{ratio:.2f}{missed}")
    return rendered


def measure(var_dir: Path, sizes: Sequence[int], rounds: int, console: Console) -> None:
    """Measure on separate databases, without fsync, because disk waits would hide other costs."""
    folder = Path(tempfile.mkdtemp(prefix="bench-flat-", dir=var_dir))
    folder.chmod(0o711)  # so that the server's user can access its data
    try:
        with serve(folder, _BUFFERS[0]) as url:
            for rows in sizes:
                uvloop.run(_fill(url, rows))
        for buffers in _BUFFERS:
            with serve(folder, buffers) as url:
                places = uvloop.run(_measure(url, sizes, rounds))
            which = f"shared_buffers of {buffers}"
            console.print(table(places, "database_us", f"processor time of PostgreSQL, {which}"))
            console.print(table(places, "waited_us", f"time until each result, {which}"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def serve(folder: Path, buffers: str) -> Generator[str]:
    """Run a PostgreSQL server with its data in a folder, and yield its URL."""
    postgres = Postgres(folder / "postgres", durable=False)
    postgres.settings |= _SETTINGS | {"shared_buffers": buffers}
    try:
        yield postgres.start()
    finally:
        postgres.stop()


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m bench.flat", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a short smoke test; its figures are meaningless"
    )
    quick = parser.parse_args().quick
    most = int(os.environ.get("PAYMENTS", SIZES[-1]))
    sizes = (100, 200) if quick else tuple(sorted({*SIZES[:-1], most}))
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    console = Console(width=110)
    measure(var_dir, sizes, 2 if quick else _ROUNDS, console)
    print_machine(console)


if __name__ == "__main__":
    main()
