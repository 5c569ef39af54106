import pytest

from payintent.webhooks.windows import PAUSE_MAX_S, CircuitChange, EndpointWindows

FAILING, HEALTHY = 1, 2
URL = "https://shop.example/hook"
NEW_URL = "https://shop.example/v2/hook"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def windows(clock):
    return EndpointWindows(100, clock)


def room(windows: EndpointWindows, endpoint_id: int, url: str = URL) -> int:
    return dict(windows.distribute_sockets([(endpoint_id, url)], 1_000)).get(endpoint_id, 0)


def reopens_in_s(windows: EndpointWindows, endpoint_id: int) -> float:
    endpoint = windows._endpoints.get(endpoint_id)
    return 0.0 if endpoint is None else max(0.0, endpoint.blocked_until - windows._clock())


def test_a_new_endpoint_can_have_two_concurrent_attempts(windows):
    assert room(windows, HEALTHY) == 2
    windows.start(HEALTHY, URL)
    assert room(windows, HEALTHY) == 1
    windows.start(HEALTHY, URL)
    assert room(windows, HEALTHY) == 0


def test_querying_endpoints_does_not_store_them(windows):
    for endpoint_id in range(1_000):
        room(windows, endpoint_id)
        reopens_in_s(windows, endpoint_id)
    assert len(windows) == 0


def test_the_window_grows_by_one_with_each_success_to_sixteen(windows):
    rooms = []
    for _ in range(20):
        windows.finish(windows.start(HEALTHY, URL), succeeded=True)
        rooms.append(room(windows, HEALTHY))
    assert rooms == [*range(3, 17), *[16] * 6]


def test_a_failure_shrinks_the_window_to_one(windows):
    _succeed(windows, HEALTHY, 5)
    windows.finish(windows.start(HEALTHY, URL), succeeded=False)
    assert room(windows, HEALTHY) == 1


def test_an_attempt_in_flight_for_over_two_seconds_shrinks_the_window_to_one(windows, clock):
    _succeed(windows, HEALTHY, 5)
    flight = windows.start(HEALTHY, URL)
    clock.now += 2.0
    assert room(windows, HEALTHY) == 6
    clock.now += 0.1
    assert room(windows, HEALTHY) == 0  # the slow attempt fills the window
    windows.finish(flight, succeeded=True)
    assert room(windows, HEALTHY) == 1
    windows.finish(windows.start(HEALTHY, URL), succeeded=True)
    assert room(windows, HEALTHY) == 2


def test_a_quick_success_beside_a_slow_attempt_does_not_reopen_the_window(windows, clock):
    _succeed(windows, HEALTHY, 5)
    slow = windows.start(HEALTHY, URL)
    clock.now += 1.5
    quick = windows.start(HEALTHY, URL)
    clock.now += 1.0
    windows.finish(quick, succeeded=True)
    assert room(windows, HEALTHY) == 0
    windows.finish(slow, succeeded=True)
    assert room(windows, HEALTHY) == 1


def test_the_fifth_failure_in_a_row_opens_the_breaker_for_thirty_seconds(windows, clock):
    _fail(windows, FAILING, 4)
    assert room(windows, FAILING) == 1
    _fail(windows, FAILING, 1)
    assert room(windows, FAILING) == 0
    assert _distribute(windows, [FAILING, HEALTHY], 100) == [(HEALTHY, 2)]
    assert reopens_in_s(windows, FAILING) == 30
    clock.now += 29.9
    assert room(windows, FAILING) == 0
    clock.now += 0.1
    assert room(windows, FAILING) == 1


def test_a_success_resets_the_failure_count(windows):
    for _ in range(2):
        _fail(windows, FAILING, 4)
        _succeed(windows, FAILING, 1)
    assert room(windows, FAILING) == 2


def test_seven_failures_in_ten_attempts_within_a_minute_open_the_breaker(windows):
    for ok in (False, False, False, True, False, False, True, True, False):
        windows.finish(windows.start(FAILING, URL), ok)
    assert room(windows, FAILING) == 1
    windows.finish(windows.start(FAILING, URL), succeeded=False)  # 7 of 10, never 5 in a row
    assert room(windows, FAILING) == 0


def test_a_failed_probe_reopens_a_breaker_opened_by_the_failure_rate(windows, clock):
    for ok in (False, False, False, False, True, False, False, True, True, False):
        windows.finish(windows.start(FAILING, URL), ok)
    clock.now += 30
    _fail(windows, FAILING, 1)
    assert reopens_in_s(windows, FAILING) == 60


def test_failures_older_than_a_minute_do_not_count_towards_the_failure_rate(windows, clock):
    for ok in (False, False, False, True, False, False, True, True, False):
        windows.finish(windows.start(FAILING, URL), ok)
    clock.now += 61
    windows.finish(windows.start(FAILING, URL), succeeded=False)
    assert room(windows, FAILING) == 1


def test_a_half_open_breaker_allows_one_probe(windows, clock):
    _fail(windows, FAILING, 5)
    clock.now += 30
    windows.start(FAILING, URL)
    assert room(windows, FAILING) == 0


def test_each_failed_probe_doubles_the_wait_up_to_fifteen_minutes(windows, clock):
    _fail(windows, FAILING, 5)
    waits = []
    for _ in range(1_100):
        waits.append(reopens_in_s(windows, FAILING))
        clock.now += reopens_in_s(windows, FAILING)
        assert room(windows, FAILING) == 1
        _fail(windows, FAILING, 1)
    assert waits[:7] == [30, 60, 120, 240, 480, 900, 900]
    assert waits[-1] == 900


def test_a_successful_probe_closes_the_breaker_and_resets_the_window_to_two(windows, clock):
    _fail(windows, FAILING, 5)
    clock.now += 30
    assert windows.finish(windows.start(FAILING, URL), succeeded=True) == CircuitChange(0)
    assert room(windows, FAILING) == 2
    assert windows.finish(windows.start(FAILING, URL), succeeded=True) is None
    _fail(windows, FAILING, 5)
    assert reopens_in_s(windows, FAILING) == 30  # the delay is reset


def test_a_failure_that_opens_the_breaker_returns_the_duration(windows, clock):
    changes = [windows.finish(windows.start(FAILING, URL), succeeded=False) for _ in range(5)]
    assert changes == [None, None, None, None, CircuitChange(30)]
    clock.now += 30
    assert windows.finish(windows.start(FAILING, URL), succeeded=False) == CircuitChange(60)


def test_attempts_started_before_the_breaker_opened_do_not_change_its_state(windows, clock):
    _succeed(windows, FAILING, 10)
    earlier = [windows.start(FAILING, URL) for _ in range(3)]
    clock.now += 0.125
    _fail(windows, FAILING, 5)
    assert windows.finish(earlier[0], succeeded=True) is None
    for flight in earlier[1:]:
        windows.finish(flight, succeeded=False)
    assert reopens_in_s(windows, FAILING) == 30


def test_a_pause_is_respected_and_limited(windows, clock):
    _succeed(windows, HEALTHY, 3)
    _pause(windows, HEALTHY, 120)
    assert room(windows, HEALTHY) == 0
    assert reopens_in_s(windows, HEALTHY) == 120
    clock.now += 120
    assert room(windows, HEALTHY) == 6
    _pause(windows, HEALTHY, 1e9)
    assert reopens_in_s(windows, HEALTHY) == 3600
    _pause(windows, FAILING, PAUSE_MAX_S)
    assert room(windows, FAILING) == 0


def test_all_endpoints_together_use_at_most_the_available_sockets(clock):
    windows = EndpointWindows(10, clock)
    _fill(windows, range(100))
    assert windows._in_flight == 10
    assert room(windows, 1_000) == 0


def test_suspects_together_use_at_most_half_of_the_sockets(clock):
    windows = EndpointWindows(10, clock)
    for endpoint_id in range(20):
        _fail(windows, endpoint_id, 2)
    _fill(windows, range(20))
    assert windows._in_flight == 5
    assert room(windows, HEALTHY + 1_000) == 2  # the rest is available to healthy endpoints


def test_distributing_sockets_respects_both_limits_before_any_attempt_starts(clock):
    windows = EndpointWindows(10, clock)
    for endpoint_id in range(20):
        _fail(windows, endpoint_id, 1)
    shares = _distribute(windows, range(40), 100)
    assert shares == [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (20, 2), (21, 2), (22, 1)]
    assert _distribute(windows, range(20, 40), 3) == [(20, 2), (21, 1)]
    assert windows._in_flight == 0


def test_endpoints_with_slow_attempts_in_flight_count_as_suspects(windows, clock):
    windows = EndpointWindows(10, clock)
    flights = [windows.start(endpoint_id, URL) for endpoint_id in range(6)]
    _fail(windows, FAILING + 100, 1)
    assert room(windows, FAILING + 100) == 1
    clock.now += 2.1
    assert room(windows, FAILING + 100) == 0  # six slow attempts use more than half of the sockets
    for flight in flights[:2]:
        windows.finish(flight, succeeded=False)
    assert room(windows, FAILING + 100) == 1


def test_a_recovered_endpoint_is_no_longer_a_suspect(clock):
    windows = EndpointWindows(4, clock)
    _fail(windows, FAILING, 1)
    _succeed(windows, FAILING, 2)
    flights = [windows.start(FAILING, URL) for _ in range(3)]
    _fail(windows, HEALTHY, 1)
    assert room(windows, HEALTHY) == 1
    for flight in flights:
        windows.finish(flight, succeeded=True)
    assert windows._in_flight == 0


def test_the_in_flight_counters_are_consistent_after_any_history(clock):
    windows = EndpointWindows(50, clock)
    flights = []
    for step in range(5_000):
        endpoint_id = step * 7 % 13
        url = f"https://shop.example/{step // 1_000}"
        clock.now += step % 5 * 0.3
        if room(windows, endpoint_id, url):
            flights.append(windows.start(endpoint_id, url))
        if step % 3 == 0 and flights:
            windows.finish(flights.pop(step % len(flights)), succeeded=step % 4 > 0)
        assert 0 <= windows._suspects_in_flight <= windows._in_flight == len(flights) <= 50
    for flight in flights:
        windows.finish(flight, succeeded=False)
    assert (windows._in_flight, windows._suspects_in_flight) == (0, 0)


def test_healthy_idle_endpoints_are_discarded(windows, clock):
    for endpoint_id in range(1_000):
        _succeed(windows, endpoint_id, 1)
    _fail(windows, 5_000, 5)
    flight = windows.start(6_000, URL)
    clock.now += 301
    _succeed(windows, HEALTHY + 9_000, 1)
    assert (
        len(windows) == 3
    )  # the failing endpoint, the endpoint in flight, and the endpoint just used
    clock.now += 3_600 + 900
    windows.finish(flight, succeeded=False)
    _succeed(windows, HEALTHY + 9_000, 1)
    assert len(windows) == 2


def test_a_paused_endpoint_is_not_discarded(windows, clock):
    _pause(windows, FAILING, 3_600)
    clock.now += 3_500
    _succeed(windows, HEALTHY, 1)
    assert room(windows, FAILING) == 0


def test_a_new_url_is_probed_although_the_breaker_of_the_old_url_is_open(windows, clock):
    _fail(windows, FAILING, 5)
    assert room(windows, FAILING, NEW_URL) == 1
    probe = windows.start(FAILING, NEW_URL)
    assert room(windows, FAILING, NEW_URL) == 0
    assert windows.finish(probe, succeeded=True) == CircuitChange(0)  # releases delayed retries
    assert room(windows, FAILING, NEW_URL) == 2


def test_a_new_url_ends_a_pause(windows):
    _pause(windows, HEALTHY, 3_600)
    assert room(windows, HEALTHY) == 0
    assert room(windows, HEALTHY, NEW_URL) == 1


def test_a_new_url_that_fails_opens_the_breaker(windows):
    _fail(windows, FAILING, 5)
    assert room(windows, FAILING, NEW_URL) == 1
    windows.finish(windows.start(FAILING, NEW_URL), succeeded=False)
    assert room(windows, FAILING, NEW_URL) == 0


def test_attempts_to_the_old_url_do_not_affect_the_new_url(windows, clock):
    _succeed(windows, FAILING, 10)
    earlier = [windows.start(FAILING, URL) for _ in range(10)]
    clock.now += 2.1
    assert room(windows, FAILING, NEW_URL) == 1
    for flight in earlier:
        windows.pause(flight, 3_600)
        assert windows.finish(flight, succeeded=False) is None
    assert room(windows, FAILING, NEW_URL) == 1
    assert (windows._in_flight, windows._suspects_in_flight) == (0, 0)


def _distribute(windows, endpoint_ids, attempts_max):
    endpoints = [(endpoint_id, URL) for endpoint_id in endpoint_ids]
    return windows.distribute_sockets(endpoints, attempts_max)


def _pause(windows, endpoint_id, seconds):
    attempt = windows.start(endpoint_id, URL)
    windows.pause(attempt, seconds)
    windows.finish(attempt, succeeded=True)


def _succeed(windows, endpoint_id, times):
    for _ in range(times):
        windows.finish(windows.start(endpoint_id, URL), succeeded=True)


def _fail(windows, endpoint_id, times):
    for _ in range(times):
        windows.finish(windows.start(endpoint_id, URL), succeeded=False)


def _fill(windows, endpoint_ids):
    for endpoint_id in endpoint_ids:
        for _ in range(room(windows, endpoint_id)):
            windows.start(endpoint_id, URL)
