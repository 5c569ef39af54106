"""Metrics of HTTP requests: their durations by route, method and status, and `/metrics`."""

import time
from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, Histogram
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from payintent.api.application import ROUTE

DURATION = Histogram(
    "payintent_http_request_seconds",
    "Time from the head of a request to the head of its response",
    ["route", "method", "status"],
    buckets=(0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
_METHODS = frozenset({"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"})
NO_ROUTE = "none"


class RequestTimes:
    """Observes the responses of an application; only its routes and known methods are labels."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str, int], Histogram] = {}  # `labels` costs more than observe

    def note(self, scope: Scope, status: int, started_s: float) -> None:
        """Observe a response when its head is sent; `started_s` is of `time.monotonic`."""
        key = (scope.get(ROUTE, NO_ROUTE), scope["method"], status)
        series = self._series.get(key)
        if series is None:
            series = self._add(*key)
        series.observe(time.monotonic() - started_s)

    def _add(self, route: str, method: str, status: int) -> Histogram:
        if method not in _METHODS:  # a client may send any word
            return DURATION.labels(route, "other", status)
        series = self._series[route, method, status] = DURATION.labels(route, method, status)
        return series


def metrics_route(write: Callable[[], bytes]) -> Route:
    """Return the route of `GET /metrics`; `write` formats the metrics of all processes."""

    async def metrics(request: Request) -> Response:
        del request
        return Response(write(), 200, {"Content-Type": CONTENT_TYPE_LATEST})

    return Route("/metrics", metrics, methods=["GET"])
