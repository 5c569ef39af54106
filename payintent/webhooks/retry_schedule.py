"""The retry schedule of webhooks."""

# Waits before each attempt, from the end of the previous attempt. They are short in the first ten
# minutes, while a buyer waits at the checkout, and in total outlast an outage over a weekend.
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


JITTER = 0.2  # either way


RETRY_AFTER_MAX_S = 3_600  # honoured up to this limit or twice the wait, whichever is longer


def next_retry_wait_s(attempts: int, retry_after_s: int | None, chance: float) -> float | None:
    """Return the seconds until the next attempt, None after the last; `chance` is in [0, 1)."""
    if attempts >= ATTEMPTS_MAX:
        return None
    base_s = WAITS_S[attempts]
    if retry_after_s is not None:
        # No jitter: an earlier attempt would ignore the endpoint's request, a later attempt could
        # exceed the limit.
        return float(min(max(retry_after_s, base_s), max(2 * base_s, RETRY_AFTER_MAX_S)))
    return base_s * (1 - JITTER + 2 * JITTER * chance)


ATTEMPTS_MAX = len(WAITS_S)
