"""Admission: how many requests run at once, how long others wait, and which are shed.

Four lanes with the same bounds, so that no crowd displaces another: merchants' servers, buyers'
browsers, gateways' callbacks, and everybody else. A request whose lane is full waits briefly; then
it is shed. A request whose client has hung up is never begun.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from prometheus_client import Counter
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from payintent.config import Settings
from payintent.slot import release_of_request

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
    MERCHANTS = "merchants"
    BUYERS = "buyers"
    GATEWAYS = "gateways"
    OTHERS = "others"  # the portal, the documentation, the operator's port, unknown paths


#: The routes that need an API key, and no others: no stranger uses a merchant's slot.
_MERCHANTS = re.compile(
    r"/v1/(?:payments(?:/[^/]+(?:/cancel|/refunds)?)?|refunds(?:/[^/]+)?|catalog|cases|balance"
    r"|events(?:/[^/]+/replay)?|disputes|statements(?:/[^/]+)?"
    r"|test/(?:clock(?:/advance)?|payments/[^/]+/(?:pay|decline|dispute)))"
)
#: What buyers' browsers and wallets ask for.
_BUYERS = (
    "/c/",
    "/sdk/",
    "/v1/checkout/",
    "/v1/onchain/",
    "/v1/chains/",
    "/v1/countries",
    "/v1/onramp/",
)
_GATEWAYS = "/v1/callbacks/"
_FREE = frozenset({"/healthz", "/readyz", "/metrics"})  # never held back
_STREAM = re.compile(r"/v1/checkout/[^/]+/events")  # lasts for minutes; the change feed bounds them


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


async def run_in_slot(cycle: RequestResponseCycle, app: Any, slot: Slot | None) -> None:
    """Run the application for a request whose client is still there; None: it needs no slot."""
    release_of_request.set(None if slot is None else slot.release)
    try:
        if not cycle.disconnected:
            await cycle.run_asgi(app)
        elif slot is not None:
            slot.abandon()
    finally:
        if slot is not None:
            slot.release()


@dataclass(slots=True, eq=False)
class Lane:
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
    def __init__(self, settings: Settings) -> None:
        self._lanes = {
            name: Lane(
                name, settings.requests_max, settings.request_wait_s, settings.requests_waiting_max
            )
            for name in LaneName
        }

    def lane(self, path: str) -> Lane | None:
        if _MERCHANTS.fullmatch(path):
            return self._lanes[LaneName.MERCHANTS]
        if path.startswith(_GATEWAYS):
            return self._lanes[LaneName.GATEWAYS]
        if path.startswith(_BUYERS):
            return None if _STREAM.fullmatch(path) else self._lanes[LaneName.BUYERS]
        return None if path in _FREE else self._lanes[LaneName.OTHERS]
