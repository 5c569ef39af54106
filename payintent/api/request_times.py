"""How long requests took, by route, method and status: the histogram that dashboards begin with."""

import time
from collections.abc import Iterable

from prometheus_client import Histogram
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

DURATION = Histogram(
    "payintent_http_request_seconds",
    "From a request's head to the head of its answer",
    ["route", "method", "status"],
    buckets=(0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
_METHODS = frozenset({"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"})
_NO_ROUTE = "none"

_Key = tuple[object, str, int]


class RequestTimes:
    """Observes every answer of an application; its labels are those of the routes, and no more."""

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._templates = templates(routes)
        self._series: dict[_Key, Histogram] = {}  # `labels` costs more than to observe

    def note(self, scope: Scope, status: int, began_s: float) -> None:
        """Observe an answer whose head is about to be sent; `began_s` is of `time.monotonic`."""
        key: _Key = (scope.get("endpoint"), scope["method"], status)
        series = self._series.get(key)
        if series is None:
            series = self._add(key)
        series.observe(time.monotonic() - began_s)

    def route_of(self, scope: Scope) -> str:
        return self._templates.get(scope.get("endpoint"), _NO_ROUTE)

    def _add(self, key: _Key) -> Histogram:
        endpoint, method, status = key
        route = self._templates.get(endpoint, _NO_ROUTE)
        if method not in _METHODS:  # a client may send any word
            return DURATION.labels(route, "other", status)
        series = self._series[key] = DURATION.labels(route, method, status)
        return series


def templates(routes: Iterable[BaseRoute]) -> dict[object, str]:
    return {route.endpoint: route.path for route in routes if isinstance(route, Route)}
