"""What clients saw of a fault: how long nothing was accepted, and when answers were quick again."""

import itertools
import math
from collections.abc import Sequence

from drills.load import CREATE, Call

_WINDOW_S = 5.0
_QUICK_S = 0.25
_SHARE = 0.99


def outage_s(calls: Sequence[Call], since: float) -> float:
    """Give the longest time without an accepted create, from the fault to the end of the load."""
    accepted = sorted(
        call.due + call.seconds for call in calls if call.kind == CREATE and call.is_ok
    )
    before = [moment for moment in accepted if moment < since]
    moments = [before[-1] if before else since, *(at for at in accepted if at >= since)]
    end = max((call.due for call in calls), default=since)
    moments.append(max(moments[-1], end))
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    return max(gaps, default=0.0)


def settled_s(calls: Sequence[Call], since: float) -> float:
    """Give how long after the fault every five seconds have had a 99th percentile below 250 ms.

    Requests are judged by when they were due; one that failed is never quick. Infinite where the
    last five seconds of the load were not quick.
    """
    last = max((call.due for call in calls), default=since)
    starts = range(max(0, int(last - since - _WINDOW_S) + 1))
    slow = [start for start in starts if not _is_quick(_due(calls, since + start))]
    if not slow:
        return 0.0
    return math.inf if slow[-1] == starts[-1] else slow[-1] + 1.0


def percentile(values: Sequence[float], share: float) -> float:
    """Give the value that this share of values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def _due(calls: Sequence[Call], start: float) -> list[Call]:
    return [call for call in calls if start <= call.due < start + _WINDOW_S]


def _is_quick(calls: Sequence[Call]) -> bool:
    times = [call.seconds if call.is_ok else math.inf for call in calls]
    return percentile(times, _SHARE) < _QUICK_S
