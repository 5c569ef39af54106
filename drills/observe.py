"""Measures the effects of a fault on clients: the outage, and the time until latency recovers."""

import itertools
import math
from collections.abc import Sequence

from drills.load import CREATE, Call

_WINDOW_S = 5.0
_QUICK_S = 0.25
_SHARE = 0.99


def outage_s(calls: Sequence[Call], since: float) -> float:
    """Return the longest gap between accepted create requests, from the fault to the load's end."""
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
    """Return the time from the fault until the 99th percentile stays below 250 ms.

    The percentile is calculated over windows of five seconds. A request belongs to the window in
    which it was due, and a failed request has an infinite duration. The result is infinite if the
    last window of the load is too slow.
    """
    last = max((call.due for call in calls), default=since)
    starts = range(max(0, int(last - since - _WINDOW_S) + 1))
    slow = [start for start in starts if not _is_quick(_due(calls, since + start))]
    if not slow:
        return 0.0
    return math.inf if slow[-1] == starts[-1] else slow[-1] + 1.0


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def _due(calls: Sequence[Call], start: float) -> list[Call]:
    return [call for call in calls if start <= call.due < start + _WINDOW_S]


def _is_quick(calls: Sequence[Call]) -> bool:
    times = [call.seconds if call.is_ok else math.inf for call in calls]
    return percentile(times, _SHARE) < _QUICK_S
