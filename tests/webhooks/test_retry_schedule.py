import pytest
from hypothesis import given
from hypothesis import strategies as st

from payintent.webhooks.retry_schedule import ATTEMPTS_MAX, WAITS_S, compute_retry_wait_s

MIDDLE = 0.5


def test_thirteen_attempts_span_78_hours_42_minutes_35_seconds():
    waits = [compute_retry_wait_s(attempt_count, None, MIDDLE) for attempt_count in range(13)]
    assert waits == pytest.approx(list(WAITS_S))
    assert sum(WAITS_S) == 78 * 3600 + 42 * 60 + 35


def test_there_is_no_attempt_after_the_thirteenth():
    assert compute_retry_wait_s(12, None, MIDDLE) is not None
    assert compute_retry_wait_s(13, None, MIDDLE) is None
    assert compute_retry_wait_s(13, 60, MIDDLE) is None


def test_the_first_four_attempts_take_less_than_three_and_a_half_minutes():
    latest = [compute_retry_wait_s(attempt_count, None, 0.999_999) for attempt_count in range(4)]
    assert sum(latest) < 60 * 3.5


@given(attempt_count=st.integers(1, ATTEMPTS_MAX - 1), chance=st.floats(0, 1, exclude_max=True))
def test_jitter_is_at_most_twenty_percent(attempt_count, chance):
    wait = compute_retry_wait_s(attempt_count, None, chance)
    assert 0.8 * WAITS_S[attempt_count] <= wait <= 1.2 * WAITS_S[attempt_count]


def test_jitter_reaches_both_limits():
    assert compute_retry_wait_s(2, None, 0.0) == pytest.approx(24)
    assert compute_retry_wait_s(2, None, 0.999_999) == pytest.approx(36, abs=0.001)


@pytest.mark.parametrize(
    ("attempt_count", "retry_after_s", "expected"),
    [
        (1, 0, 5),  # never earlier than the schedule
        (1, 60, 60),
        (1, 3600, 3600),
        (1, 999_999_999, 3600),  # at most an hour for early attempts
        (8, 999_999_999, 2 * 6 * 3600),  # at most twice the scheduled wait for later attempts
        (12, 60, 24 * 3600),
    ],
)
def test_retry_after_is_respected_within_limits(attempt_count, retry_after_s, expected):
    assert compute_retry_wait_s(attempt_count, retry_after_s, 0.0) == expected
