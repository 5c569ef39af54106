"""What the tables of restarts say of requests."""

from collections.abc import Sequence

from drills.load import Call

BETWEEN_S = 1.0  # from one restart's end to the beginning of the next
FIGURES = ("requests", "2xx", "lost", "slowest")  # names of what `figures` gives


def figures_of_each(began: Sequence[float], calls: Sequence[Call]) -> list[tuple[str, ...]]:
    """Sum up the requests that were due from each beginning to the next one."""
    spans = zip(began, [*began, float("inf")][1:], strict=True)
    return [figures([call for call in calls if start <= call.due < end]) for start, end in spans]


def figures(calls: Sequence[Call]) -> tuple[str, ...]:
    """Sum up requests: how many, answered as hoped, lost, and the slowest one."""
    fine = sum(call.is_ok for call in calls)
    slowest = max((call.seconds for call in calls), default=0.0)
    return f"{len(calls):,}", f"{fine:,}", f"{len(calls) - fine:,}", f"{slowest * 1000:,.0f} ms"
