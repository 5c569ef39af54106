"""A dispatcher in virtual time: the delay of healthy merchants when endpoints hang."""

import heapq
import itertools
import random
from collections import deque

import pytest

from payintent.webhooks.retry_schedule import compute_retry_wait_s
from payintent.webhooks.windows import CircuitChange, EndpointWindows

EVENTS_PER_S = 200
DEADLINE_S = 15.0
POLL_S = 0.25
URL = "https://shop.example/hook"


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_healthy_merchant_waits_under_a_second_while_others_hang(share):
    waits = _simulate(EndpointWindows, endpoints=200, hanging=share, sockets=2_048, lasting_s=90)
    assert waits.p99 < 1.0
    assert waits.worst < 5.0


def test_a_healthy_merchant_waits_under_a_second_with_few_sockets_after_a_warm_up():
    waits = _simulate(
        EndpointWindows, endpoints=200, hanging=0.5, sockets=256, lasting_s=90, warm_up_s=20
    )
    assert waits.p99 < 1.0


@pytest.mark.parametrize("attempt_s", [0.0, DEADLINE_S])
def test_all_events_are_delivered_within_three_minutes_of_a_one_minute_outage(attempt_s):
    """When an attempt succeeds, all delayed deliveries become due."""
    delivered = _recover(down_s=60.0, attempt_s=attempt_s, events=120)
    assert len(delivered) == 120
    assert max(delivered) < 60.0 + 180.0


def test_with_a_shared_pool_healthy_merchants_would_wait_too_long():
    waits = _simulate(_OnePool, endpoints=200, hanging=0.5, sockets=500, lasting_s=60)
    assert waits.p99 > 10.0


def test_without_a_suspect_share_healthy_merchants_would_wait_too_long():
    waits = _simulate(_WindowOnly, endpoints=200, hanging=0.5, sockets=256, lasting_s=60)
    assert waits.p99 > 5.0


class _OnePool:
    """The usual dispatcher, which assigns sockets on a first-come, first-served basis."""

    def __init__(self, sockets_max, _clock) -> None:
        self._free = sockets_max

    def distribute_sockets(self, endpoints, _attempts_max):
        return [(endpoint_id, 1) for endpoint_id, _ in endpoints if self.room(endpoint_id) > 0]

    def room(self, _endpoint_id):
        return self._free

    def start(self, endpoint_id, _url):
        self._free -= 1
        return endpoint_id

    def finish(self, _flight, ok):
        self._free += 1


class _WindowOnly(_OnePool):
    """Each endpoint has a fixed window of four, without further limits."""

    def __init__(self, sockets_max, clock) -> None:
        super().__init__(sockets_max, clock)
        self._flights = {}

    def room(self, endpoint_id):
        return min(self._free, 4 - self._flights.get(endpoint_id, 0))

    def start(self, endpoint_id, url):
        self._flights[endpoint_id] = self._flights.get(endpoint_id, 0) + 1
        return super().start(endpoint_id, url)

    def finish(self, flight, ok):
        self._flights[flight] -= 1
        super().finish(flight, ok)


class _Waits:
    def __init__(self, waits) -> None:
        ordered = sorted(waits)
        self.p99 = ordered[len(ordered) * 99 // 100]
        self.worst = ordered[-1]


class _Dispatcher:
    def __init__(self, kind, *, endpoints, hanging, sockets, seed=1) -> None:
        self.now = 0.0
        self.chance = random.Random(seed)
        self.windows = kind(sockets, lambda: self.now)
        self.endpoints = endpoints
        self.hanging = int(endpoints * hanging)  # endpoints with a lower id hang
        self.queues = {endpoint_id: deque() for endpoint_id in range(endpoints)}
        self.agenda = []
        self.numbers = itertools.count()
        self.waits = []  # (due time, delay) of healthy endpoints

    def schedule(self, time, action, *arguments):
        heapq.heappush(self.agenda, (time, next(self.numbers), action, arguments))

    def run(self, lasting_s):
        self.schedule(0.0, self.arrive)
        self.schedule(0.0, self.poll)
        while self.agenda and self.agenda[0][0] < lasting_s:
            self.now, _, action, arguments = heapq.heappop(self.agenda)
            action(*arguments)
        for endpoint_id in range(self.hanging, self.endpoints):  # unsent deliveries count too
            self.waits += [(due, lasting_s - due) for due, _ in self.queues[endpoint_id]]

    def arrive(self):
        self.queue(self.chance.randrange(self.endpoints), 0)
        self.schedule(self.now + self.chance.expovariate(EVENTS_PER_S), self.arrive)

    def poll(self):
        for endpoint_id in self.chance.sample(range(self.endpoints), self.endpoints):
            self.dispatch(endpoint_id)
        self.schedule(self.now + POLL_S, self.poll)

    def queue(self, endpoint_id, attempt_count):
        self.queues[endpoint_id].append((self.now, attempt_count))
        self.dispatch(endpoint_id)

    def dispatch(self, endpoint_id):
        queue = self.queues[endpoint_id]
        while queue and self.windows.distribute_sockets([(endpoint_id, URL)], 1):
            due, attempt_count = queue.popleft()
            flight = self.windows.start(endpoint_id, URL)
            hangs = endpoint_id < self.hanging
            if not hangs:
                self.waits.append((due, self.now - due))
            lasts_s = DEADLINE_S if hangs else self.chance.lognormvariate(-3.0, 0.5)  # about 50 ms
            self.schedule(
                self.now + lasts_s, self.finish, endpoint_id, flight, attempt_count + 1, not hangs
            )

    def finish(self, endpoint_id, flight, attempt_count, ok):
        self.windows.finish(flight, ok)
        wait_s = None if ok else compute_retry_wait_s(attempt_count, None, self.chance.random())
        if wait_s is not None:
            self.schedule(self.now + wait_s, self.queue, endpoint_id, attempt_count)
        self.dispatch(endpoint_id)


def _recover(*, down_s, attempt_s, events):
    """Deliver an event per second to an endpoint that is down at first; return the arrivals."""
    now, chance = 0.0, random.Random(1)
    windows = EndpointWindows(2_048, lambda: now)
    due = [(float(number), 0) for number in range(events)]  # due time, and number of attempts
    flying, delivered = [], []  # end time, flight, and number of attempts including this attempt
    while now < 3_600.0 and len(delivered) < events:
        for flight in sorted(flying, key=lambda flight: flight[0]):
            ends_at, attempt, attempt_count = flight
            if ends_at > now:
                continue
            flying.remove(flight)
            ok = attempt.since >= down_s
            if windows.finish(attempt, ok) == CircuitChange(0):
                due = [(min(at, now), before) for at, before in due]
            if ok:
                delivered.append(now)
            else:
                due.append(
                    (
                        now + compute_retry_wait_s(attempt_count, None, chance.random()),
                        attempt_count,
                    )
                )
        for _, slots in windows.distribute_sockets([(1, URL)], 500):
            for at, attempt_count in sorted(item for item in due if item[0] <= now)[:slots]:
                due.remove((at, attempt_count))
                lasts_s = attempt_s if now < down_s else 0.05
                flying.append((now + lasts_s, windows.start(1, URL), attempt_count + 1))
        now += POLL_S
    return delivered


def _simulate(kind, *, lasting_s, warm_up_s=0.0, **setting):
    dispatcher = _Dispatcher(kind, **setting)
    dispatcher.run(lasting_s)
    waits = [wait for due, wait in dispatcher.waits if due >= warm_up_s]
    assert len(waits) > 500
    return _Waits(waits)
