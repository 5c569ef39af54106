"""Prometheus counters of payments, captures and refunds.

A worker increments them when it counts the hourly figures. So every committed outcome is counted
once regardless of its cause, and counting does not slow down payments.
"""

from collections.abc import Sequence

from prometheus_client import Counter

from payintent.storage import hourly_figures
from payintent.storage.database import Database
from payintent.storage.hourly_figures import CountedOutcomes

PAYMENTS = Counter("payintent_payments_total", "Payments that have ended", ["end", "provider"])
CAPTURES = Counter("payintent_captures_total", "Captures", ["provider"])
REFUNDS = Counter("payintent_refunds_total", "Refunds that succeeded", ["of", "provider"])


async def count_outcomes(database: Database) -> bool:
    """Count new outcomes; returns whether more are pending."""
    return await hourly_figures.count_next(database, add)


def add(outcomes: Sequence[CountedOutcomes]) -> None:
    for outcome in outcomes:
        match outcome.kind:
            case "CAPTURED":
                CAPTURES.labels(outcome.provider).inc(outcome.count)
            case "REFUNDED":
                REFUNDS.labels("payment", outcome.provider).inc(outcome.count)
            case "RETURNED":
                REFUNDS.labels("case", outcome.provider).inc(outcome.count)
            case end:
                PAYMENTS.labels(end, outcome.provider).inc(outcome.count)
