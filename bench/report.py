"""The benchmark's results, printed as tables and stored as JSON."""

import os
import platform
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.machine import cpu_name, describe_python, describe_speed


@dataclass(frozen=True, slots=True)
class Round:
    """A measurement of an operation and, immediately afterwards, of its yardsticks."""

    per_s: float
    cpu_us: float
    load_cpu_us: float  # of the load generator, which shares the cores
    empty_per_s: float  # of the empty application, on the same server
    empty_cpu_us: float
    pgbench_per_s: float | None  # with the same statement; None if there is no such statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The medians of an operation's rounds."""

    per_s: float
    cpu_us: float
    load_cpu_us: float
    empty_per_s: float
    empty_cpu_us: float
    empty_ratio: float
    pgbench_per_s: float | None
    pgbench_ratio: float | None
    rounds: list[Round]


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """Latencies in milliseconds, measured from each callback's due time."""

    per_s: float
    count: int
    answered_p50_ms: float
    answered_p99_ms: float
    webhook_p50_ms: float
    webhook_p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The latency of one kind of list page. Each pair is for the small and the large list."""

    name: str
    rows: tuple[int, int]
    p50_ms: tuple[float, float]
    p99_ms: tuple[float, float]
    ratio: float  # of the two p50 figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine on which the run was measured."""

    cores: int
    cpu: str
    system: str
    python: str  # the version and the build
    speed: str
    postgres: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All results of a run."""

    machine: Machine
    clients: int
    round_s: float
    create: Operation
    get: Operation
    quotes: Operation
    catalog: Operation  # responses with 304
    lists: list[Listing]
    callbacks: Callbacks


def operation(rounds: list[Round]) -> Operation:
    """Compute medians. Ratios are per round, because a round's figures are measured together."""
    pgbench = [
        (item.per_s, item.pgbench_per_s) for item in rounds if item.pgbench_per_s is not None
    ]
    return Operation(
        per_s=statistics.median(item.per_s for item in rounds),
        cpu_us=statistics.median(item.cpu_us for item in rounds),
        load_cpu_us=statistics.median(item.load_cpu_us for item in rounds),
        empty_per_s=statistics.median(item.empty_per_s for item in rounds),
        empty_cpu_us=statistics.median(item.empty_cpu_us for item in rounds),
        empty_ratio=statistics.median(item.per_s / item.empty_per_s for item in rounds),
        pgbench_per_s=statistics.median(raw for _, raw in pgbench) if pgbench else None,
        pgbench_ratio=statistics.median(per_s / raw for per_s, raw in pgbench) if pgbench else None,
        rounds=rounds,
    )


def percentile_ms(seconds: list[float], percent: int) -> float:
    """Return the value, in milliseconds, that `percent` of all values do not exceed."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] * 1000


def machine(postgres: str) -> Machine:
    """Describe this machine."""
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        cpu=cpu_name(),
        system=f"{platform.system()} {platform.release()}",
        python=describe_python(),
        speed=describe_speed(),
        postgres=postgres,
    )


def show(report: Report, console: Console) -> None:
    """Print the results."""
    here = report.machine
    table = Table(
        title=f"{report.clients} clients, one API process; medians of {len(report.create.rounds)} "
        f"rounds of {report.round_s:g} s",
        caption=f"{here.cores} cores of {here.cpu}, {here.system}, {here.python}, {here.speed}, "
        f"PostgreSQL {here.postgres} with fsync on. The empty app runs on the same server.",
    )
    table.add_column("")
    for name in ("service", "CPU", "empty app", "CPU", "ratio", "pgbench", "ratio"):
        table.add_column(name, justify="right")
    for name, one in (
        ("POST /v1/payments", report.create),
        ("GET /v1/payments/{payment_id}", report.get),
        ("GET /v1/checkout/{checkout_id}/quotes", report.quotes),
        ("GET /v1/catalog (304)", report.catalog),
    ):
        table.add_row(name, *_figures(one))
    console.print(table)
    console.print(_lists(report.lists))
    calls = report.callbacks
    table = Table(title=f"{calls.count} callbacks at a steady rate of {calls.per_s:g}/s, open loop")
    for name in ("time since the callback was sent", "p50", "p99"):
        table.add_column(name, justify="left" if name.startswith("time") else "right")
    for name, middle, high in (
        ("PAID committed and response sent", calls.answered_p50_ms, calls.answered_p99_ms),
        ("first byte of the webhook", calls.webhook_p50_ms, calls.webhook_p99_ms),
    ):
        table.add_row(name, f"{middle:.1f} ms", f"{high:.1f} ms")
    console.print(table)


def _figures(one: Operation) -> list[str]:
    """Return the table cells for an operation and its yardsticks."""
    figures = [
        *(f"{one.per_s:,.0f}/s", f"{one.cpu_us:.0f} us"),
        *(f"{one.empty_per_s:,.0f}/s", f"{one.empty_cpu_us:.0f} us", f"{one.empty_ratio:.2f}"),
    ]
    if one.pgbench_per_s is not None and one.pgbench_ratio is not None:
        figures += [f"{one.pgbench_per_s:,.0f}/s", f"{one.pgbench_ratio:.2f}"]
    return figures


def _lists(lists: list[Listing]) -> Table:
    small, large = lists[0].rows
    table = Table(title="GET /v1/payments (pages of 20, one client)")
    table.add_column("")
    for rows in (small, large):
        table.add_column(f"{rows:,} rows: p50", justify="right")
        table.add_column("p99", justify="right")
    table.add_column("ratio of p50s", justify="right")
    for item in lists:
        figures = [
            f"{value:.2f} ms"
            for pair in zip(item.p50_ms, item.p99_ms, strict=True)
            for value in pair
        ]
        table.add_row(item.name, *figures, f"{item.ratio:.2f}")
    return table


def keep(report: Report, path: Path) -> None:
    """Write the results as JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(asdict(report)), indent=1) + b"\n")
