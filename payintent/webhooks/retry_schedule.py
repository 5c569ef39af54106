"""The retry schedule of webhooks."""

# Delays before each attempt, measured from the end of the previous attempt. They are short for the
# first ten minutes, while the buyer waits on the checkout page. Together they span more than a
# weekend.
WAITS_S = (
    0,
    5,
    30,
    2 * 60,
    10 * 60,
    30 * 60,
    1 * 3_600,
    3 * 3_600,
    6 * 3_600,
    10 * 3_600,
    14 * 3_600,
    20 * 3_600,
    24 * 3_600,
)
ATTEMPTS_MAX = len(WAITS_S)
JITTER = 0.2  # each delay varies by up to 20 % in either direction
RETRY_AFTER_MAX_S = 3_600  # cap on Retry-After, or twice the scheduled delay if that is longer


def compute_retry_wait_s(
    attempts: int, retry_after_s: int | None, random_value: float
) -> float | None:
    """Return the delay before the next attempt, or None if there are no attempts left.

    `random_value` must be in [0, 1).
    """
    if attempts >= ATTEMPTS_MAX:
        return None
    base_s = WAITS_S[attempts]
    if retry_after_s is not None:
        # Without jitter: an earlier attempt would violate Retry-After, and a later attempt could
        # exceed the cap.
        return float(min(max(retry_after_s, base_s), max(2 * base_s, RETRY_AFTER_MAX_S)))
    return base_s * (1 - JITTER + 2 * JITTER * random_value)
