"""Counters of payments, captures and refunds, by the step that counts the console's figures.

A worker counts what is committed, and every outcome once whoever caused it: a callback, a chain, an
inquiry or a clock. So what was rolled back never counts, and no payment pays for the counting.
"""

from collections.abc import Sequence

from prometheus_client import Counter

from payintent.storage import hourly_figures
from payintent.storage.database import Database
from payintent.storage.hourly_figures import CountedOutcomes

PAYMENTS = Counter("payintent_payments_total", "Payments that ended", ["end", "provider"])
CAPTURES = Counter("payintent_captures_total", "Money that was taken", ["provider"])
REFUNDS = Counter("payintent_refunds_total", "Money that went back", ["of", "provider"])


async def count_outcomes(database: Database) -> bool:
    """Count what happened since the last time; True where more waits to be counted."""
    return await hourly_figures.count_next(database, add)


def add(counted: Sequence[CountedOutcomes]) -> None:
    """Add to the counters what was counted and committed."""
    for outcome in counted:
        match outcome.kind:
            case "CAPTURED":
                CAPTURES.labels(outcome.provider).inc(outcome.count)
            case "REFUNDED":
                REFUNDS.labels("payment", outcome.provider).inc(outcome.count)
            case "RETURNED":
                REFUNDS.labels("case", outcome.provider).inc(outcome.count)
            case end:
                PAYMENTS.labels(end, outcome.provider).inc(outcome.count)
