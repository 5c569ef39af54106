"""The table of `make drill-cells`: each fault on a line, and medians by fault."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

#: What another cell's 99th percentile may become while a cell is away.
OTHERS_MAX = 1.2
_ERRORS_SHOWN = 4
_COLUMNS = ("runs", "its own: no create for", "others: p99", "during", "ratio", "others failed")
_COUNTS = ("lost", "doubled", "missing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One fault, once; times in seconds."""

    fault: str
    title: str
    outage_s: float  # of creates of the merchant in the cell
    before_s: float  # 99th percentile of the other merchant before the fault
    during_s: float  # and while it lasted
    errors: Counter[str]  # of the merchant in the cell
    others_failed: int
    lost: int
    doubled: int
    missing: int
    outage_max_s: float | None = None  # judged by this, and not by what others felt

    @property
    def is_short(self) -> bool:
        """Tell whether creates stopped no longer than they may."""
        return self.outage_max_s is None or self.outage_s <= self.outage_max_s

    @property
    def ratio(self) -> float:
        """Give what the other merchant's 99th percentile became."""
        return self.during_s / self.before_s if self.before_s else math.inf

    @property
    def is_clean(self) -> bool:
        """Tell whether nothing was lost, doubled or missing, and nobody else felt it."""
        return not (self.lost or self.doubled or self.missing or self.others_failed)


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
    shown = Table(title="Cells under load: medians")
    shown.add_column("fault")
    for name in (*_COLUMNS, *_COUNTS):
        shown.add_column(name, justify="right")
    for title, group in _grouped(runs):
        shown.add_row(title, *figures(group))
    return shown


def figures(runs: Sequence[Run]) -> list[str]:
    """Give the cells of one fault: medians of times, sums of what must be none."""
    return [
        str(len(runs)),
        f"{statistics.median(run.outage_s for run in runs):.1f} s",
        f"{statistics.median(run.before_s for run in runs) * 1000:.0f} ms",
        f"{statistics.median(run.during_s for run in runs) * 1000:.0f} ms",
        _ratio(runs),
        *(str(sum(getattr(run, name) for run in runs)) for name in ("others_failed", *_COUNTS)),
    ]


def markdown(runs: Sequence[Run]) -> Iterable[str]:
    """Give the table's lines as the documentation has them."""
    for title, group in _grouped(runs):
        yield f"| {' | '.join([title, *figures(group)])} |"


def is_met(runs: Sequence[Run]) -> bool:
    """Tell whether nothing was lost, and nobody waited for another's cell."""
    return all(run.is_clean and run.is_short for run in runs) and all(
        group[0].outage_max_s is not None or median_ratio(group) <= OTHERS_MAX
        for _, group in _grouped(runs)
    )


def median_ratio(runs: Sequence[Run]) -> float:
    """Give the median of what others' 99th percentiles became."""
    return statistics.median(run.ratio for run in runs)


def _ratio(runs: Sequence[Run]) -> str:
    ratio = median_ratio(runs)
    is_judged = runs[0].outage_max_s is None
    return f"{ratio:.2f}" if ratio <= OTHERS_MAX or not is_judged else f"{ratio:.2f} missed"


def _grouped(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    titles = dict.fromkeys(run.title for run in runs)
    return [(title, [run for run in runs if run.title == title]) for title in titles]
