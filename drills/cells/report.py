"""The table of `make drill-cells`: each fault on a line, and medians by fault."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

#: How much another installation's 99th percentile may grow during a fault.
OTHERS_MAX = 1.2
_ERRORS_SHOWN = 4
_COLUMNS = ("runs", "its own: no create for", "others: p99", "during", "ratio", "others failed")
_COUNTS = ("lost", "doubled", "missing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The result of a fault; times in seconds."""

    fault: str
    title: str
    outage_s: float  # of creates of the affected merchant
    before_s: float  # 99th percentile of the other merchant before the fault
    during_s: float  # and while it lasted
    errors: Counter[str]  # of the affected merchant
    others_failed: int
    lost: int
    doubled: int
    missing: int
    is_harmless: bool = False  # no request of any merchant may fail

    @property
    def ratio(self) -> float:
        """Return by how much the other merchant's 99th percentile grew."""
        return self.during_s / self.before_s if self.before_s else math.inf

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
        f"{run.before_s * 1000:.0f} -> {run.during_s * 1000:.0f} ms, {run.others_failed} failed; "
        f"lost {run.lost}, doubled {run.doubled}, events missing {run.missing}; "
        f"{errors or 'no errors'}"
    )


def table(runs: Sequence[Run]) -> Table:
    """Show medians by fault, in the order in which they came."""
    shown = Table(title="Installations under load: medians")
    shown.add_column("fault")
    for name in (*_COLUMNS, *_COUNTS):
        shown.add_column(name, justify="right")
    for title, group in _grouped(runs):
        shown.add_row(title, *figures(group))
    return shown


def figures(runs: Sequence[Run]) -> list[str]:
    """Return a fault's row: medians of times, sums of what must be zero."""
    return [
        str(len(runs)),
        f"{statistics.median(run.outage_s for run in runs):.1f} s",
        f"{statistics.median(run.before_s for run in runs) * 1000:.0f} ms",
        f"{statistics.median(run.during_s for run in runs) * 1000:.0f} ms",
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
        median_ratio(group) <= OTHERS_MAX for _, group in _grouped(runs)
    )


def median_ratio(runs: Sequence[Run]) -> float:
    """Return the median growth of the other merchant's 99th percentile."""
    return statistics.median(run.ratio for run in runs)


def _ratio(runs: Sequence[Run]) -> str:
    ratio = median_ratio(runs)
    return f"{ratio:.2f}" if ratio <= OTHERS_MAX else f"{ratio:.2f} missed"


def _grouped(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    titles = dict.fromkeys(run.title for run in runs)
    return [(title, [run for run in runs if run.title == title]) for title in titles]
