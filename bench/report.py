"""The figures: as a table for people, as JSON for everything else."""

import os
import platform
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Round:
    """One operation measured once: the service, then pgbench, one right after the other."""

    per_s: float
    raw_per_s: float
    cpu_us: float
    load_cpu_us: float  # of the load generator: the cores are shared


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Medians of the rounds."""

    per_s: float
    raw_per_s: float
    ratio: float
    cpu_us: float
    load_cpu_us: float
    rounds: list[Round]


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """Milliseconds from a callback's sending."""

    per_s: float
    count: int
    answered_p50_ms: float
    answered_p99_ms: float
    webhook_p50_ms: float
    webhook_p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One kind of page; of the small list first, then of the large one."""

    name: str
    rows: tuple[int, int]
    p50_ms: tuple[float, float]
    p99_ms: tuple[float, float]
    ratio: float  # of the two p50


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where it was measured."""

    cores: int
    cpu: str
    system: str
    python: str
    postgres: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All figures of one run."""

    machine: Machine
    clients: int
    round_s: float
    create: Operation
    get: Operation
    quotes: Operation  # `raw_per_s` of it and of the catalog is of `/healthz`, which does nothing
    catalog: Operation  # 304s
    lists: list[Listing]
    callbacks: Callbacks


def operation(rounds: list[Round]) -> Operation:
    """Take medians; the ratio is the median of ratios, for each stands within one moment."""
    return Operation(
        per_s=statistics.median(one.per_s for one in rounds),
        raw_per_s=statistics.median(one.raw_per_s for one in rounds),
        ratio=statistics.median(one.per_s / one.raw_per_s for one in rounds),
        cpu_us=statistics.median(one.cpu_us for one in rounds),
        load_cpu_us=statistics.median(one.load_cpu_us for one in rounds),
        rounds=rounds,
    )


def percentile_ms(seconds: list[float], percent: int) -> float:
    """Give the smallest value that `percent` of all do not exceed, in milliseconds."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] * 1000


def machine(postgres: str) -> Machine:
    """Describe this machine."""
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        cpu=_cpu(),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        postgres=postgres,
    )


def show(report: Report, console: Console) -> None:
    """Print the figures."""
    here = report.machine
    table = Table(
        title=f"{report.clients} clients, one API process; medians of {len(report.create.rounds)} "
        f"rounds of {report.round_s:g} s",
        caption=f"{here.cores} cores of {here.cpu}, {here.system}, Python {here.python}, "
        f"PostgreSQL {here.postgres} with fsync on",
    )
    for name in ("", "service", "pgbench, same statement", "ratio", "CPU of the API process"):
        table.add_column(name, justify="right" if name else "left")
    for name, one in (("POST /payments", report.create), ("GET /payments/{id}", report.get)):
        table.add_row(
            name,
            f"{one.per_s:,.0f}/s",
            f"{one.raw_per_s:,.0f}/s",
            f"{one.ratio:.2f}",
            f"{one.cpu_us:.0f} us",
        )
    console.print(table)
    console.print(_beside_nothing(report))
    console.print(_lists(report.lists))
    calls = report.callbacks
    table = Table(title=f"{calls.count} callbacks at {calls.per_s:g}/s, steady, open loop")
    for name in ("from callback sent", "p50", "p99"):
        table.add_column(name, justify="left" if name.startswith("from") else "right")
    for name, middle, high in (
        ("to PAID committed and answered", calls.answered_p50_ms, calls.answered_p99_ms),
        ("to first byte of the webhook", calls.webhook_p50_ms, calls.webhook_p99_ms),
    ):
        table.add_row(name, f"{middle:.1f} ms", f"{high:.1f} ms")
    console.print(table)


def _beside_nothing(report: Report) -> Table:
    table = Table(title="answers beside one that does nothing")
    for name in ("", "service", "GET /healthz", "ratio", "CPU of the API process"):
        table.add_column(name, justify="right" if name else "left")
    for name, measured in (
        ("GET /checkout/{id}/quotes", report.quotes),
        ("GET /catalog, 304", report.catalog),
    ):
        table.add_row(
            name,
            f"{measured.per_s:,.0f}/s",
            f"{measured.raw_per_s:,.0f}/s",
            f"{measured.ratio:.2f}",
            f"{measured.cpu_us:.0f} us",
        )
    return table


def _lists(lists: list[Listing]) -> Table:
    small, large = lists[0].rows
    table = Table(title="GET /payments, pages of 20, one client")
    table.add_column("")
    for rows in (small, large):
        table.add_column(f"{rows:,} rows: p50", justify="right")
        table.add_column("p99", justify="right")
    table.add_column("ratio of p50s", justify="right")
    for one in lists:
        figures = [
            f"{value:.2f} ms" for pair in zip(one.p50_ms, one.p99_ms, strict=True) for value in pair
        ]
        table.add_row(one.name, *figures, f"{one.ratio:.2f}")
    return table


def keep(report: Report, path: Path) -> None:
    """Write the figures as JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(asdict(report)), indent=1) + b"\n")


def _cpu() -> str:
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
