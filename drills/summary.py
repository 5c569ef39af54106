"""Summarize the requests for the restart tables."""

from collections.abc import Sequence

from drills.load import Call

BETWEEN_S = 1.0  # between two restarts
FIGURES = ("requests", "2xx", "lost", "slowest")  # the columns that `figures` returns


def figures_of_each(began: Sequence[float], calls: Sequence[Call]) -> list[tuple[str, ...]]:
    """Summarize the requests that were due between the start of each restart and the next."""
    spans = zip(began, [*began, float("inf")][1:], strict=True)
    return [figures([call for call in calls if start <= call.due < end]) for start, end in spans]


def figures(calls: Sequence[Call]) -> tuple[str, ...]:
    """Return the number of requests, successes and failures, and the maximum duration."""
    fine = sum(call.is_ok for call in calls)
    slowest = max((call.seconds for call in calls), default=0.0)
    return f"{len(calls):,}", f"{fine:,}", f"{len(calls) - fine:,}", f"{slowest * 1000:,.0f} ms"
