"""The table of `make drill-cells`: each fault on a line, and percentiles by fault."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from drills.observe import percentile

#: How much another installation's 99th percentile may grow during a fault.
OTHERS_MAX = 1.2
_SHARE = 0.99
_ERRORS_SHOWN = 4
_COLUMNS = ("runs", "its own: no create for", "others: p99", "during", "ratio", "others failed")
_COUNTS = ("lost", "doubled", "missing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The result of a fault; times in seconds."""

    fault: str
    title: str
    outage_s: float  # of creates of the affected merchant
    before_s: Sequence[float]  # each request of the other merchant before the fault
    during_s: Sequence[float]  # and while it lasted
    errors: Counter[str]  # of the affected merchant
    others_failed: int
    lost: int
    doubled: int
    missing: int
    is_harmless: bool = False  # no request of any merchant may fail

    @property
    def is_clean(self) -> bool:
        """Tell whether nothing was lost, doubled or missing, and nobody else felt it."""
        failed = self.others_failed + (self.errors.total() if self.is_harmless else 0)
        return not (self.lost or self.doubled or self.missing or failed)


def show_run(run: Run, number: int, console: Console) -> None:
    """Print one run on a line."""
    errors = ", ".join(f"{kind} {count}" for kind, count in run.errors.most_common(_ERRORS_SHOWN))
    console.print(
        f"{run.fault} {number}: nothing accepted for {run.outage_s:.1f} s; others' p99 "
        f"{p99_s([run.before_s]) * 1000:.0f} -> {p99_s([run.during_s]) * 1000:.0f} ms, "
        f"{run.others_failed} failed; "
        f"lost {run.lost}, doubled {run.doubled}, events missing {run.missing}; "
        f"{errors or 'no errors'}"
    )


def table(runs: Sequence[Run]) -> Table:
    """Show each fault: the median outage, and percentiles of all runs together."""
    shown = Table(title="Installations under load")
    shown.add_column("fault")
    for name in (*_COLUMNS, *_COUNTS):
        shown.add_column(name, justify="right")
    for title, group in _grouped(runs):
        shown.add_row(title, *figures(group))
    return shown


def figures(runs: Sequence[Run]) -> list[str]:
    """Return a fault's row.

    A percentile of one short run depends on a handful of requests; all runs together have enough.
    """
    return [
        str(len(runs)),
        f"{statistics.median(run.outage_s for run in runs):.1f} s",
        f"{p99_s(run.before_s for run in runs) * 1000:.1f} ms",
        f"{p99_s(run.during_s for run in runs) * 1000:.1f} ms",
        _ratio(runs),
        *(str(sum(getattr(run, name) for run in runs)) for name in ("others_failed", *_COUNTS)),
    ]


def markdown(runs: Sequence[Run]) -> Iterable[str]:
    """Return the table's lines in Markdown."""
    for title, group in _grouped(runs):
        yield f"| {' | '.join([title, *figures(group)])} |"


def is_met(runs: Sequence[Run]) -> bool:
    """Tell whether nothing was lost, and no other merchant was affected."""
    return all(run.is_clean for run in runs) and all(
        growth(group) <= OTHERS_MAX for _, group in _grouped(runs)
    )


def p99_s(times: Iterable[Sequence[float]]) -> float:
    """Return the 99th percentile of the requests of several runs."""
    return percentile([time for run in times for time in run], _SHARE)


def growth(runs: Sequence[Run]) -> float:
    """Return by how much the other merchant's 99th percentile grew during the fault."""
    return p99_s(run.during_s for run in runs) / p99_s(run.before_s for run in runs)


def _ratio(runs: Sequence[Run]) -> str:
    ratio = growth(runs)
    return f"{ratio:.2f}" if ratio <= OTHERS_MAX else f"{ratio:.2f} missed"


def _grouped(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    titles = dict.fromkeys(run.title for run in runs)
    return [(title, [run for run in runs if run.title == title]) for title in titles]
