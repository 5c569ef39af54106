"""Admission control: limits on concurrent and queued requests; excess requests are shed.

Merchant servers, buyers' browsers, gateway callbacks, exports and all other requests have separate
lanes with equal limits, so that they do not crowd each other out. If its lane is full, a request
waits briefly before it is shed. A request is not started if its client has disconnected.
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

from payintent.runtime.settings import Settings
from payintent.runtime.waiting import current_slot_release

SHED_REQUESTS = Counter(
    "payintent_requests_shed_total",
    "Requests shed with 503 because their lane was full",
    ["lane"],
)
ABANDONED_REQUESTS = Counter(
    "payintent_requests_abandoned_total",
    "Requests that were not started because their clients had disconnected",
    ["lane"],
)


class LaneName(StrEnum):
    MERCHANTS = "merchants"
    BUYERS = "buyers"
    GATEWAYS = "gateways"
    EXPORTS = "exports"
    OTHERS = "others"  # the portal, the documentation, the operator port and unknown paths


#: Only routes that require an API key, so that other clients cannot occupy the merchants' slots.
_MERCHANT_PATHS = re.compile(
    r"/v1/(?:payments(?:/[^/]+(?:/cancel|/refunds)?)?|refunds(?:/[^/]+)?|catalog|cases|balance"
    r"|events(?:/[^/]+/replay)?|payment-links(?:/[^/]+(?:/deactivate)?)?|disputes"
    r"|statements(?:/[^/]+)?"
    r"|test/(?:clock(?:/advance)?|payments/[^/]+/(?:pay|decline|transfer|dispute)))"
)
#: Paths used by buyers' browsers and wallets.
_BUYER_PATHS = (
    "/c/",
    "/sdk/",
    "/v1/checkout/",
    "/v1/onchain/",
    "/v1/chains/",
    "/v1/countries",
    "/v1/onramp/",
)
_GATEWAY_PATHS = "/v1/callbacks/"
#: File extensions of exports, which are much slower than pages.
_EXPORT_PATHS = (".csv", ".jsonl", ".pdf")
_UNLIMITED_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
_STREAM_PATHS = re.compile(r"/v1/checkout/[^/]+/events")  # limited by the change feed


@dataclass(slots=True, eq=False)
class QueuedRequest:
    start: "Callable[[Slot], None]"
    shed: Callable[[], None]
    is_disconnected: Callable[[], bool]
    deadline: float = 0.0


@dataclass(slots=True, eq=False)
class Slot:
    """A request's slot in its lane. `release` is idempotent."""

    lane: "Lane"
    is_released: bool = False

    def release(self) -> None:
        """Pass the slot to the longest-waiting request."""
        if not self.is_released:
            self.is_released = True
            self.lane.reuse_slot()


async def run_in_slot(cycle: RequestResponseCycle, app: Any, slot: Slot | None) -> None:
    """Run the application if the client is still connected, then release the slot."""
    current_slot_release.set(None if slot is None else slot.release)
    try:
        if not cycle.disconnected:
            await cycle.run_asgi(app)
        elif slot is not None:
            ABANDONED_REQUESTS.labels(slot.lane.name).inc()
    finally:
        if slot is not None:
            slot.release()


@dataclass(slots=True, eq=False)
class Lane:
    name: LaneName
    size: int
    wait_s: float
    queue_max: int
    running_count: int = 0
    _queue: deque[QueuedRequest] = field(default_factory=deque[QueuedRequest])
    _timer: asyncio.TimerHandle | None = None

    def enter(self, request: QueuedRequest) -> None:
        """Start, queue or shed a request."""
        if self.running_count < self.size and not self._queue:
            self.running_count += 1
            request.start(Slot(self))
        elif len(self._queue) < self.queue_max:
            loop = asyncio.get_running_loop()
            request.deadline = loop.time() + self.wait_s
            self._queue.append(request)
            if self._timer is None:
                self._timer = loop.call_at(request.deadline, self._shed_overdue)
        else:
            self._shed(request)

    def reuse_slot(self) -> None:
        """Start the longest-waiting request whose client is still connected."""
        now = asyncio.get_running_loop().time()
        while self._queue:
            request = self._queue.popleft()
            if not request.is_disconnected() and request.deadline >= now:
                request.start(Slot(self))
                return
            self._shed_or_abandon(request)
        self.running_count -= 1

    def _shed_overdue(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._queue and (self._queue[0].deadline <= now or self._queue[0].is_disconnected()):
            self._shed_or_abandon(self._queue.popleft())
        if self._queue:
            self._timer = loop.call_at(self._queue[0].deadline, self._shed_overdue)

    def _shed_or_abandon(self, request: QueuedRequest) -> None:
        if request.is_disconnected():
            ABANDONED_REQUESTS.labels(self.name).inc()
        else:
            self._shed(request)

    def _shed(self, request: QueuedRequest) -> None:
        SHED_REQUESTS.labels(self.name).inc()
        request.shed()


class Admission:
    def __init__(self, settings: Settings) -> None:
        self._lanes = {
            name: Lane(
                name, settings.requests_max, settings.request_wait_s, settings.requests_waiting_max
            )
            for name in LaneName
        }

    def find_lane(self, path: str) -> Lane | None:
        """Return the lane for a path, or None if it is not limited."""
        if _MERCHANT_PATHS.fullmatch(path):
            return self._lanes[LaneName.MERCHANTS]
        if path.startswith(_GATEWAY_PATHS):
            return self._lanes[LaneName.GATEWAYS]
        if path.startswith(_BUYER_PATHS):
            return None if _STREAM_PATHS.fullmatch(path) else self._lanes[LaneName.BUYERS]
        if path.endswith(_EXPORT_PATHS):
            return self._lanes[LaneName.EXPORTS]
        return None if path in _UNLIMITED_PATHS else self._lanes[LaneName.OTHERS]
