"""Per-endpoint concurrency windows and circuit breakers.

Three limits prevent an unresponsive endpoint from delaying other endpoints:

- a concurrency window per endpoint, which grows with each success;
- a circuit breaker per endpoint, which prevents attempts while it is open;
- a limited share of the sockets for suspects, which are endpoints that are slow or failing.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf

WINDOW_START = 2
WINDOW_MAX = 16
SLOW_AFTER_S = 2.0  # a slower attempt makes the endpoint a suspect and resets its window to 1

OPEN_AFTER_FAILURES = 5  # consecutive
OPEN_FAILURE_RATE = 0.7  # within OPEN_SAMPLE_S, if there are at least OPEN_SAMPLE_MIN outcomes
OPEN_SAMPLE_MIN = 10
OPEN_SAMPLE_S = 60.0
OPEN_SAMPLE_MAX = 64  # outcomes stored per endpoint
OPEN_S = 30.0  # doubles each time a probe fails
OPEN_MAX_S = 900.0
OPEN_DOUBLINGS_MAX = 5  # enough to reach OPEN_MAX_S

PAUSE_MAX_S = 3_600.0  # cap on Retry-After
SUSPECT_DIVISOR = 2  # all suspects together use at most half of the sockets
DISCARD_AFTER_S = 300.0  # after the last use of a healthy endpoint
DISCARD_SUSPECT_AFTER_S = 3_600.0  # after a suspect was last used or blocked
SWEEP_EVERY_S = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class InFlightAttempt:
    """An attempt in progress; `since` is monotonic time."""

    endpoint_id: int
    since: float


@dataclass(frozen=True, slots=True)
class CircuitChange:
    """The circuit has opened for the next `open_s` seconds, or has closed if `open_s` is 0."""

    open_s: float


_CLOSED = CircuitChange(0)


class EndpointWindows:
    """The state of all endpoints in a process. The state of idle endpoints is discarded."""

    def __init__(self, sockets_max: int, clock: Callable[[], float]) -> None:
        self._sockets_max = sockets_max
        self._suspects_max = max(1, sockets_max // SUSPECT_DIVISOR)
        self._clock = clock
        self._endpoints: dict[int, _Endpoint] = {}
        self._in_flight = 0
        self._suspects_in_flight = 0
        #: Attempts that were not slow when last checked, oldest first. Some may have finished.
        self._fast_attempts: deque[InFlightAttempt] = deque()
        self._sweep_at = clock() + SWEEP_EVERY_S

    def __len__(self) -> int:
        return len(self._endpoints)

    def distribute_sockets(
        self, endpoints: Iterable[tuple[int, str | None]], attempts_max: int
    ) -> list[tuple[int, int]]:
        """Distribute the free sockets among endpoints in the given order.

        `endpoints` are `(endpoint_id, url)` pairs. Returns `(endpoint_id, sockets)` pairs.
        Endpoints that do not get a socket are omitted.
        """
        now = self._clock()
        self._mark_slow(now)
        free_sockets = min(attempts_max, self._sockets_max - self._in_flight)
        free_suspect_sockets = self._suspects_max - self._suspects_in_flight
        allocations: list[tuple[int, int]] = []
        for endpoint_id, url in endpoints:
            if free_sockets <= 0:
                break
            endpoint = self._get_endpoint(endpoint_id, url)
            limit = min(free_sockets, free_suspect_sockets) if endpoint.is_suspect else free_sockets
            slots = 0 if now < endpoint.blocked_until else min(endpoint.free_slots, limit)
            if slots > 0:
                allocations.append((endpoint_id, slots))
                free_sockets -= slots
                free_suspect_sockets -= slots if endpoint.is_suspect else 0
        return allocations

    def start(self, endpoint_id: int, url: str) -> InFlightAttempt:
        """Register a new attempt. The caller must call `finish`, even if the attempt fails."""
        now = self._clock()
        self._sweep(now)
        attempt = InFlightAttempt(endpoint_id, now)
        endpoint = self._endpoints.setdefault(endpoint_id, _Endpoint(url))
        endpoint.used_at = now
        endpoint.in_flight[attempt] = None
        self._in_flight += 1
        self._suspects_in_flight += endpoint.is_suspect
        self._fast_attempts.append(attempt)
        return attempt

    def finish(self, attempt: InFlightAttempt, succeeded: bool) -> CircuitChange | None:
        """Record the outcome of an attempt and return the circuit change, if any.

        If the circuit has closed, the caller should release the deliveries that it held back.
        """
        now = self._clock()
        self._mark_slow(now)
        self._in_flight -= 1
        endpoint = self._find_endpoint(attempt)
        if endpoint is None:
            return None
        previous_suspects = endpoint.suspects_in_flight
        del endpoint.in_flight[attempt]
        endpoint.used_at = now
        change = endpoint.record(attempt, succeeded, now)
        self._suspects_in_flight += endpoint.suspects_in_flight - previous_suspects
        return change

    def pause(self, attempt: InFlightAttempt, seconds: float) -> None:
        """Pause the endpoint, which responded to `attempt` with `Retry-After`."""
        endpoint = self._find_endpoint(attempt)
        if endpoint is not None:
            endpoint.paused_until = self._clock() + min(max(0.0, seconds), PAUSE_MAX_S)

    def _get_endpoint(self, endpoint_id: int, url: str | None) -> "_Endpoint":
        """Return an endpoint's state. If its URL has changed, the next attempt is a probe."""
        endpoint = self._endpoints.get(endpoint_id, _INITIAL)
        if endpoint is _INITIAL or endpoint.url == url:
            return endpoint
        self._suspects_in_flight -= endpoint.suspects_in_flight
        self._endpoints[endpoint_id] = _Endpoint(
            url, window=1, openings=1, used_at=endpoint.used_at
        )
        return self._endpoints[endpoint_id]

    def _find_endpoint(self, attempt: InFlightAttempt) -> "_Endpoint | None":
        """Return the state that `attempt` affects; None if the URL has changed since it started."""
        endpoint = self._endpoints.get(attempt.endpoint_id)
        return endpoint if endpoint is not None and attempt in endpoint.in_flight else None

    def _mark_slow(self, now: float) -> None:
        while self._fast_attempts and now - self._fast_attempts[0].since > SLOW_AFTER_S:
            attempt = self._fast_attempts.popleft()
            endpoint = self._find_endpoint(attempt)
            if endpoint is not None:
                previous_suspects = endpoint.suspects_in_flight
                endpoint.is_slow = True
                endpoint.window = 1
                self._suspects_in_flight += endpoint.suspects_in_flight - previous_suspects

    def _sweep(self, now: float) -> None:
        if now < self._sweep_at:
            return
        self._sweep_at = now + SWEEP_EVERY_S
        idle_ids = [
            key for key, endpoint in self._endpoints.items() if endpoint.can_be_discarded(now)
        ]
        for key in idle_ids:
            del self._endpoints[key]


@dataclass(slots=True)
class _Endpoint:
    url: str | None = None
    window: int = WINDOW_START
    #: An ordered set, oldest first.
    in_flight: dict[InFlightAttempt, None] = field(default_factory=dict[InFlightAttempt, None])
    is_slow: bool = False
    failures: int = 0  # consecutive
    outcomes: deque[tuple[float, bool]] = field(
        default_factory=lambda: deque[tuple[float, bool]](maxlen=OPEN_SAMPLE_MAX)
    )
    openings: int = 0  # since the circuit last closed; 0: closed
    opened_at: float = -inf
    open_until: float = -inf
    paused_until: float = -inf
    used_at: float = -inf

    @property
    def is_suspect(self) -> bool:
        return self.is_slow or self.failures > 0

    @property
    def free_slots(self) -> int:
        return self.window - len(self.in_flight)

    @property
    def suspects_in_flight(self) -> int:
        return len(self.in_flight) if self.is_suspect else 0

    @property
    def blocked_until(self) -> float:
        return max(self.open_until, self.paused_until)

    def can_be_discarded(self, now: float) -> bool:
        if self.in_flight:
            return False
        if self.is_suspect:
            return now > max(self.used_at, self.blocked_until) + DISCARD_SUSPECT_AFTER_S
        return now > max(self.used_at + DISCARD_AFTER_S, self.blocked_until)

    def record(self, attempt: InFlightAttempt, succeeded: bool, now: float) -> CircuitChange | None:
        if attempt.since < self.opened_at:
            return None  # started before the circuit opened; only probes count now
        self.outcomes.append((now, succeeded))
        return self._record_success(attempt, now) if succeeded else self._record_failure(now)

    def _record_success(self, attempt: InFlightAttempt, now: float) -> CircuitChange | None:
        was_open = self.openings > 0
        oldest_attempt = next(iter(self.in_flight), attempt)
        self.is_slow = now - min(oldest_attempt.since, attempt.since) > SLOW_AFTER_S
        self.failures = 0
        self.openings = 0
        self.window = 1 if self.is_slow else min(self.window + 1, WINDOW_MAX)
        return _CLOSED if was_open else None

    def _record_failure(self, now: float) -> CircuitChange | None:
        self.failures += 1
        self.window = 1
        recent_outcomes = [succeeded for at, succeeded in self.outcomes if at > now - OPEN_SAMPLE_S]
        failure_rate = recent_outcomes.count(False) / max(1, len(recent_outcomes))
        is_failing = len(recent_outcomes) >= OPEN_SAMPLE_MIN and failure_rate >= OPEN_FAILURE_RATE
        if self.openings > 0 or self.failures >= OPEN_AFTER_FAILURES or is_failing:
            return self._open_circuit(now)
        return None

    def _open_circuit(self, now: float) -> CircuitChange:
        open_s = min(OPEN_S * 2**self.openings, OPEN_MAX_S)
        self.opened_at = now
        self.open_until = now + open_s
        self.openings = min(self.openings + 1, OPEN_DOUBLINGS_MAX)
        self.outcomes.clear()
        return CircuitChange(open_s)


_INITIAL = _Endpoint()  # the state before the first attempt; must not be modified
