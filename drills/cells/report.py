"""Prints the results of `make drill-cells`: each run, and percentiles for each fault."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from drills.observe import percentile

#: Maximum factor by which a fault may increase the other merchant's 99th percentile.
OTHERS_MAX = 1.2
_SHARE = 0.99
_ERRORS_SHOWN = 4
_COLUMNS = ("runs", "outage", "other p99 before", "during", "ratio", "other failed")
_COUNTS = ("lost", "doubled", "missing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The result of a run. Times are in seconds."""

    fault: str
    title: str
    outage_s: float  # longest gap between accepted create requests of the affected merchant
    before_s: Sequence[float]  # durations of the other merchant's requests before the fault
    during_s: Sequence[float]  # durations of these requests during the fault
    errors: Counter[str]  # failed requests of the affected merchant
    others_failed: int
    lost: int
    doubled: int
    missing: int
    is_harmless: bool = False  # no request of any merchant may fail

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, duplicated or missing, and only permitted requests failed."""
        failed = self.others_failed + (self.errors.total() if self.is_harmless else 0)
        return not (self.lost or self.doubled or self.missing or failed)


def show_run(run: Run, number: int, console: Console) -> None:
    errors = ", ".join(f"{kind} {count}" for kind, count in run.errors.most_common(_ERRORS_SHOWN))
    console.print(
        f"{run.fault} {number}: outage {run.outage_s:.1f} s; other p99 "
        f"{p99_s([run.before_s]) * 1000:.0f} -> {p99_s([run.during_s]) * 1000:.0f} ms, "
        f"{run.others_failed} failed; "
        f"lost {run.lost}, doubled {run.doubled}, events missing {run.missing}; "
        f"{errors or 'no errors'}"
    )


def table(runs: Sequence[Run]) -> Table:
    """Return a table with a row for each fault."""
    rendered = Table(title="Installations under load")
    rendered.add_column("fault")
    for name in (*_COLUMNS, *_COUNTS):
        rendered.add_column(name, justify="right")
    for title, group in _grouped(runs):
        rendered.add_row(title, *figures(group))
    return rendered


def figures(runs: Sequence[Run]) -> list[str]:
    """Return the cells of a fault's row.

    Percentiles are calculated from all runs together, because a short run has few requests.
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
    """Return the table's rows in Markdown."""
    for title, group in _grouped(runs):
        yield f"| {' | '.join([title, *figures(group)])} |"


def is_met(runs: Sequence[Run]) -> bool:
    """Return whether nothing was lost and the other merchant was not affected."""
    return all(run.is_clean for run in runs) and all(
        growth(group) <= OTHERS_MAX for _, group in _grouped(runs)
    )


def p99_s(times: Iterable[Sequence[float]]) -> float:
    """Return the 99th percentile of the requests in several runs, in seconds."""
    return percentile([time for run in times for time in run], _SHARE)


def growth(runs: Sequence[Run]) -> float:
    """Return the factor by which the fault increased the other merchant's 99th percentile."""
    return p99_s(run.during_s for run in runs) / p99_s(run.before_s for run in runs)


def _ratio(runs: Sequence[Run]) -> str:
    ratio = growth(runs)
    return f"{ratio:.2f}" if ratio <= OTHERS_MAX else f"{ratio:.2f} missed"


def _grouped(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    titles = dict.fromkeys(run.title for run in runs)
    return [(title, [run for run in runs if run.title == title]) for title in titles]
