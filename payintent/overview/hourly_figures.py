"""Count each outcome exactly once, by hour (tables `hourly_figure` and `figure_mark`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import LiteralString
from uuid import UUID

from prometheus_client import Counter

from payintent.db.database import Database, Tx

#: Minimum age of changes that are counted. More recent changes may not be committed yet.
SETTLING_DELAY_S = 3.0
#: Delay between the end of an hour and its recount. No transaction lasts that long.
CLOSING_DELAY = timedelta(minutes=10)
RETENTION = timedelta(days=31)
_HOUR = timedelta(hours=1)
#: Tolerated difference between the database's clock and the clocks of the hosts that generate ids.
_SKEW = timedelta(minutes=1)
_RECOUNT_SKEW = timedelta(hours=1)
_STATEMENT_S = 60.0
_LOCK_S = 2.0
PAYMENTS = Counter("payintent_payments_total", "Payments that have ended", ["end", "provider"])
CAPTURES = Counter("payintent_captures_total", "Captures", ["provider"])
REFUNDS = Counter("payintent_refunds_total", "Refunds that succeeded", ["of", "provider"])


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """The number of outcomes of a kind at a provider since the last count."""

    kind: str  # PAID, FAILED, EXPIRED, CANCELLED, CAPTURED, REFUNDED (payment) or RETURNED (case)
    provider: str  # "none" if there is no provider
    count: int


def increment_counters(outcomes: Sequence[OutcomeCount]) -> None:
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


async def count_outcomes(
    database: Database,
    report: Callable[[Sequence[OutcomeCount]], None] = increment_counters,
) -> bool:
    """Count new outcomes or recount an hour that has ended; return whether more work remains.

    Does nothing while another process is counting. New outcomes are passed to `report` after the
    commit. Recounted outcomes are not reported again.
    """
    outcomes: list[OutcomeCount] = []
    async with database.transaction() as tx:
        is_more_pending = await _update_figures(tx, outcomes)
    report(outcomes)
    return is_more_pending


async def _update_figures(tx: Tx, outcomes: list[OutcomeCount]) -> bool:
    figure_mark = await tx.row(
        """
        SELECT counted_until, closed_until, clock() AS now
        FROM figure_mark
        FOR UPDATE SKIP LOCKED
        """
    )
    if figure_mark is None:
        return False
    if figure_mark["closed_until"] + _HOUR + CLOSING_DELAY <= figure_mark["now"]:
        await _close_hour(tx, figure_mark["closed_until"])
        return True
    until = figure_mark["now"] - timedelta(seconds=SETTLING_DELAY_S)
    if until > figure_mark["counted_until"]:
        outcomes += await _add_outcomes(tx, figure_mark["counted_until"], until, _SKEW)
        await tx.fetch("UPDATE figure_mark SET counted_until = $1", until)
    return False


async def _close_hour(tx: Tx, hour: datetime) -> None:
    """Recount an hour from scratch, and delete figures whose retention period has ended."""
    await tx.extend_timeouts(statement_s=_STATEMENT_S, lock_s=_LOCK_S)
    await tx.fetch("DELETE FROM hourly_figure WHERE hour = $1", hour)
    await tx.fetch("DELETE FROM hourly_figure WHERE hour < $1", hour - RETENTION)
    await _add_outcomes(tx, hour, hour + _HOUR, _RECOUNT_SKEW)
    await tx.fetch(
        """
        UPDATE figure_mark
        SET closed_until = $1, counted_until = greatest(counted_until, $1)
        """,
        hour + _HOUR,
    )


async def _add_outcomes(
    tx: Tx, since: datetime, until: datetime, skew: timedelta
) -> list[OutcomeCount]:
    """Add the outcomes from `since` (inclusive) to `until` (exclusive) to the hourly figures.

    Test merchants are excluded. Outcomes are selected by times that never change, because a payment
    ends only once and a refund succeeds only once. Captures and attempts have no index by time, but
    their ids are in chronological order, except for clock skew between hosts.
    """
    rows = await tx.fetch(
        f"""
        WITH outcomes AS MATERIALIZED ({_OUTCOMES}), figures AS (
            INSERT INTO hourly_figure AS f (hour, subject, kind, value, count, amount)
            SELECT hour,
                CASE WHEN grouping(currency) = 0 THEN 'currency'
                    WHEN grouping(method) = 0 THEN 'method'
                    ELSE 'country' END,
                kind, coalesce(currency, method, country), count(*),
                CASE WHEN grouping(currency) = 0 THEN sum(amount) ELSE 0 END
            FROM outcomes
            CROSS JOIN LATERAL (
                SELECT date_bin('1 hour', at, '2000-01-01 00:00:00+00') AS hour
            ) bin
            WHERE kind NOT IN ('CAPTURED', 'RETURNED')
            GROUP BY hour, kind, GROUPING SETS ((currency), (method), (country))
            HAVING grouping(currency) = 0 OR kind IN ('PAID', 'FAILED', 'EXPIRED', 'CANCELLED')
            ON CONFLICT ON CONSTRAINT hourly_figure_pkey DO UPDATE
            SET count = f.count + excluded.count, amount = f.amount + excluded.amount
        )
        SELECT kind, provider, count(*) AS count
        FROM outcomes
        WHERE provider <> ''
        GROUP BY kind, provider
        """,
        since,
        until,
        _first_id(since - skew),
        _first_id(until + skew),
    )
    return [OutcomeCount(row["kind"], row["provider"], row["count"]) for row in rows]


def _first_id(at: datetime) -> UUID:
    """Return the lowest id that can be generated at a given time."""
    return UUID(int=int(at.timestamp() * 1000) << 80)


_OUTCOMES: LiteralString = """
    SELECT coalesce(p.paid_at, p.failed_at, p.expired_at, p.cancelled_at) AS at,
        CASE WHEN p.paid_at IS NULL THEN p.status ELSE 'PAID' END AS kind, p.currency,
        coalesce(s.token || ' on ' || s.chain, s.provider || ' ' || s.kind, '') AS method,
        coalesce(s.country, '') AS country, p.amount, coalesce(s.provider, 'none') AS provider
    FROM payment p
    JOIN merchant m ON m.id = p.merchant_id AND m.livemode
    LEFT JOIN session s ON s.id = p.session_id
    WHERE p.status NOT IN ('PENDING', 'PROCESSING')
        AND coalesce(p.paid_at, p.failed_at, p.expired_at, p.cancelled_at) >= $1
        AND coalesce(p.paid_at, p.failed_at, p.expired_at, p.cancelled_at) < $2
    UNION ALL
    SELECT c.captured_at, 'CAPTURED', '', '', '', 0, a.provider
    FROM capture c
    JOIN provider_account a ON a.id = c.account_id AND a.livemode
    WHERE c.id >= $3 AND c.id < $4 AND c.captured_at >= $1 AND c.captured_at < $2
    UNION ALL
    SELECT r.updated_at, CASE WHEN r.case_id IS NULL THEN 'REFUNDED' ELSE 'RETURNED' END,
        r.currency, '', '', coalesce(r.amount, 0), a.provider
    FROM refund r
    JOIN capture c ON c.id = r.capture_id
    JOIN provider_account a ON a.id = c.account_id AND a.livemode
    WHERE r.status = 'SUCCEEDED' AND r.updated_at >= $1 AND r.updated_at < $2
    UNION ALL
    SELECT created_at, 'DISPUTED', currency, '', '', amount_minor, ''
    FROM dispute
    WHERE created_at >= $1 AND created_at < $2
        AND account_id NOT IN (SELECT id FROM provider_account WHERE NOT livemode)
    UNION ALL
    SELECT started_at + duration_ms * interval '1 millisecond',
        CASE outcome WHEN 'delivered' THEN 'DELIVERED' ELSE 'UNDELIVERED' END, '', '', '', 0, ''
    FROM attempt a
    WHERE id >= $3 AND id < $4
        AND NOT EXISTS (
            SELECT FROM event e
            JOIN merchant m ON m.id = e.merchant_id AND NOT m.livemode
            WHERE e.id = a.event_id
        )
        AND started_at + duration_ms * interval '1 millisecond' >= $1
        AND started_at + duration_ms * interval '1 millisecond' < $2
"""
