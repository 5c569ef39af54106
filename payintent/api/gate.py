"""Admission: how many requests run at once, how long others wait, and which are shed.

Three lanes with the same bounds, so that no crowd displaces another: merchants' servers, buyers'
browsers, gateways' callbacks. A request whose lane is full waits briefly; then it is shed. One
whose client has hung up meanwhile is never begun.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from prometheus_client import Counter

from payintent.config import Settings

SHED = Counter(
    "payintent_requests_shed_total",
    "Requests that were answered 503 unread, because too many were under way",
    ["lane"],
)
ABANDONED = Counter(
    "payintent_requests_abandoned_total",
    "Requests that were not begun, because their clients had hung up",
    ["lane"],
)


class LaneName(StrEnum):
    """The three groups of callers; each has a bound of its own."""

    MERCHANTS = "merchants"
    BUYERS = "buyers"
    GATEWAYS = "gateways"


#: What anybody may ask is with the buyers: no stranger takes a merchant's place.
_BUYERS = ("/c/", "/v1/checkout/", "/v1/onchain/", "/v1/chains/", "/v1/countries", "/v1/onramp/")
_GATEWAYS = "/v1/callbacks/"
_FREE = frozenset({"/healthz", "/readyz", "/metrics"})  # never held back
_STREAM = "/events"  # lasts for minutes; the change feed bounds how many there are


@dataclass(slots=True, eq=False)
class Waiting:
    """A request that waits to begin, with its possible ends."""

    begin: "Callable[[Slot], None]"
    shed: Callable[[], None]
    is_gone: Callable[[], bool]
    until: float = 0.0


@dataclass(slots=True, eq=False)
class Slot:
    """A request's slot in its lane; releasing it twice is harmless."""

    lane: "Lane"
    is_released: bool = False

    def release(self) -> None:
        """Pass the slot to the request that has waited longest."""
        if not self.is_released:
            self.is_released = True
            self.lane.pass_on()

    def abandon(self) -> None:
        """Count a request that had a slot and whose client has gone."""
        ABANDONED.labels(self.lane.name).inc()


@dataclass(slots=True, eq=False)
class Lane:
    """One lane: its slots, and the requests that wait for one."""

    name: LaneName
    size: int
    wait_s: float
    waiting_max: int
    under_way: int = 0
    _queue: deque[Waiting] = field(default_factory=deque[Waiting])
    _timer: asyncio.TimerHandle | None = None

    def enter(self, request: Waiting) -> None:
        """Begin a request, let it wait, or shed it."""
        if self.under_way < self.size and not self._queue:
            self.under_way += 1
            request.begin(Slot(self))
        elif len(self._queue) < self.waiting_max:
            loop = asyncio.get_running_loop()
            request.until = loop.time() + self.wait_s
            self._queue.append(request)
            if self._timer is None:
                self._timer = loop.call_at(request.until, self._shed_late)
        else:
            self._shed(request)

    def pass_on(self) -> None:
        """Pass a slot to the request that has waited longest and whose client is still there."""
        now = asyncio.get_running_loop().time()
        while self._queue:
            request = self._queue.popleft()
            if request.is_gone():
                ABANDONED.labels(self.name).inc()
            elif request.until < now:
                self._shed(request)
            else:
                request.begin(Slot(self))
                return
        self.under_way -= 1

    def _shed_late(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._queue and (self._queue[0].until <= now or self._queue[0].is_gone()):
            request = self._queue.popleft()
            if request.is_gone():
                ABANDONED.labels(self.name).inc()
            else:
                self._shed(request)
        if self._queue:
            self._timer = loop.call_at(self._queue[0].until, self._shed_late)

    def _shed(self, request: Waiting) -> None:
        SHED.labels(self.name).inc()
        request.shed()


class Gate:
    """The lanes of one server."""

    def __init__(self, settings: Settings) -> None:
        self._lanes = {
            name: Lane(
                name, settings.requests_max, settings.request_wait_s, settings.requests_waiting_max
            )
            for name in LaneName
        }
        self._merchants = self._lanes[LaneName.MERCHANTS]

    def lane(self, path: str) -> Lane | None:
        """Return the lane of a path; None for paths that are never held back."""
        if path.startswith(_GATEWAYS):
            return self._lanes[LaneName.GATEWAYS]
        if path.startswith(_BUYERS):
            return None if path.endswith(_STREAM) else self._lanes[LaneName.BUYERS]
        return None if path in _FREE else self._merchants
