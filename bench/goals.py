"""The goals of a benchmark run and its results, as a table and as an HTML page with bars."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.chain import Found
from bench.delivery_limits import BACKLOG_RATIO_MIN, P99_MS_MAX, Limits
from bench.report import Report
from bench.work_rates import WorkRate

CREATE_RATIO = 0.6  # ratio to pgbench's rate for the same rows
GET_RATIO = 0.35  # ratio to pgbench's rate for the same SELECT
CATALOG_RATIO = 0.25  # ratio to the empty application's rate
WATCHER_PER_S = 10_000

_BAR_PX = 420
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em }
td, th { padding: .2em .8em .2em 0; text-align: left } .right { text-align: right }
.bar { background: #8882; width: 420px } .bar div { height: 1em; background: #2a7 }
.missed .bar div { background: #c62 } pre { overflow-x: auto; font: 13px/1.3 monospace }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd } }
"""


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure from this run, and its minimum or maximum."""

    name: str
    measured: float
    target: float
    unit: str  # the unit of both figures
    is_ceiling: bool = False  # the goal is a maximum

    @property
    def is_met(self) -> bool:
        """Return whether the figure meets the goal."""
        return self.measured <= self.target if self.is_ceiling else self.measured >= self.target

    @property
    def share(self) -> float:
        """Return the share of the goal that was reached, at most 1."""
        if self.is_met:
            return 1.0
        return self.target / self.measured if self.is_ceiling else self.measured / self.target

    def write(self, figure: float) -> str:
        """Format a figure for this goal: ratios with decimals, rates without."""
        return f"{figure:,.2f}{self.unit}" if self.target < 1 else f"{figure:,.0f}{self.unit}"


def list_goals(
    report: Report, watcher: Found, rates: Sequence[WorkRate], limits: Limits
) -> list[Goal]:
    """List every goal with the result of this run."""
    create, get = report.create.pgbench_ratio or 0, report.get.pgbench_ratio or 0
    return [
        Goal("POST /v1/payments, 32 clients", create, CREATE_RATIO, " of pgbench"),
        Goal("GET /v1/payments/{payment_id}, 32 clients", get, GET_RATIO, " of pgbench"),
        Goal(
            "GET /v1/catalog (304)", report.catalog.empty_ratio, CATALOG_RATIO, " of an empty app"
        ),
        *(Goal(rate.name, rate.per_s, rate.goal_per_s, "/s") for rate in rates),
        Goal("on-chain payments settled", watcher.per_s, WATCHER_PER_S, "/s"),
        *(
            Goal(
                f"webhooks, p99, while {waits.hanging:.0%} of endpoints hang",
                waits.p99_ms,
                P99_MS_MAX,
                " ms",
                is_ceiling=True,
            )
            for waits in limits.waits
        ),
        Goal(
            f"POST /v1/payments with {limits.backlog.events:,} due events",
            limits.backlog.ratio,
            BACKLOG_RATIO_MIN,
            " of the rate without them",
        ),
    ]


def show(goals: Sequence[Goal], console: Console) -> None:
    """Print the goals, and whether they were met."""
    table = Table(title="goals")
    for name in ("", "this run", "goal", ""):
        table.add_column(name, justify="left" if not name else "right")
    for goal in goals:
        verdict = "met" if goal.is_met else "missed"
        table.add_row(goal.name, goal.write(goal.measured), goal.write(goal.target), verdict)
    console.print(table)


def write_page(goals: Sequence[Goal], printed: str) -> str:
    """Return a page with the output and, for each goal, a bar that is full if the goal is met."""
    rows = "\n".join(map(_row, goals))
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>make bench</title>\n'
        f"<style>{_STYLE}</style>\n<h1>make bench</h1>\n<table>\n"
        f"<tr><th>work<th>this run<th>goal<th>share of the goal\n{rows}\n</table>\n"
        f"<pre>{html.escape(printed)}</pre>\n"
    )


def _row(goal: Goal) -> str:
    cells = (goal.name, goal.write(goal.measured), goal.write(goal.target))
    texts = "".join(f"<td>{html.escape(cell)}" for cell in cells)
    missed = "" if goal.is_met else ' class="missed"'
    width = round(goal.share * _BAR_PX)
    return f'<tr{missed}>{texts}<td><div class="bar"><div style="width:{width}px"></div></div>'
