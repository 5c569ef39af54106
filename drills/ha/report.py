"""Prints each run, and the medians for each fault."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

_ERRORS_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    fault: str
    title: str
    acknowledged: int  # creates
    outage_s: float
    settled_s: float
    errors: Counter[str]
    lost: int
    doubled: int
    missing: int

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.missing)


def show_run(run: Run, number: int, console: Console) -> None:
    errors = ", ".join(f"{kind} {count}" for kind, count in run.errors.most_common(_ERRORS_SHOWN))
    console.print(
        f"{run.fault} {number}: {run.acknowledged} acknowledged; write outage "
        f"{run.outage_s:.1f} s; p99 recovery {_seconds(run.settled_s)}; "
        f"lost {run.lost}, duplicated {run.doubled}, missing events {run.missing}; "
        f"{errors or 'no errors'}"
    )


def table(runs: Sequence[Run]) -> Table:
    """Return a table with a row for each fault, in the order of the first runs."""
    rendered = Table(title="Faults under load: medians", show_lines=False)
    rendered.add_column("fault")
    for name in ("runs", "write outage", "maximum", "p99 recovery", "failed requests", "lost"):
        rendered.add_column(name, justify="right")
    rendered.add_column("duplicated", justify="right")
    rendered.add_column("missing events", justify="right")
    for title in dict.fromkeys(run.title for run in runs):
        rendered.add_row(title, *figures([run for run in runs if run.title == title]))
    return rendered


def figures(runs: Sequence[Run]) -> list[str]:
    """Return the cells of a fault's row: medians of times and errors, and sums of losses."""
    failed = statistics.median(run.errors.total() for run in runs)
    return [
        str(len(runs)),
        _seconds(statistics.median(run.outage_s for run in runs)),
        _seconds(max(run.outage_s for run in runs)),
        _seconds(statistics.median(run.settled_s for run in runs)),
        f"{failed:g}",
        *(str(sum(counts)) for counts in _counts(runs)),
    ]


def markdown(runs: Sequence[Run]) -> Iterable[str]:
    """Return the table's rows in Markdown, for the documentation."""
    for title in dict.fromkeys(run.title for run in runs):
        cells = figures([run for run in runs if run.title == title])
        yield f"| {' | '.join([title, *cells])} |"


def _counts(runs: Sequence[Run]) -> list[list[int]]:
    return [[getattr(run, name) for run in runs] for name in ("lost", "doubled", "missing")]


def _seconds(value: float) -> str:
    return "not within the run" if math.isinf(value) else f"{value:.1f} s"
