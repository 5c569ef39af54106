"""What happened in each hour (tables hourly_figure, figure_mark): counted once, set by set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import LiteralString
from uuid import UUID

from payintent.storage.database import Database, Tx

#: Figures may be so old: what is younger may not be committed yet.
SETTLED_S = 3.0
#: An hour is counted once more so long after its end. No transaction of ours takes that long.
CLOSED_AFTER = timedelta(minutes=10)
KEPT = timedelta(days=31)
_HOUR = timedelta(hours=1)
#: How far the clocks that ids are made by may differ from the database's.
_SKEW = timedelta(minutes=1)
_SKEW_CLOSED = timedelta(hours=1)
_STATEMENT_S = 60.0
_LOCK_S = 2.0


@dataclass(frozen=True, slots=True)
class CountedOutcomes:
    """How often something happened at a provider since the last count; `none` is no provider.

    `kind` is PAID, FAILED, EXPIRED, CANCELLED of payments, CAPTURED, REFUNDED of a payment, or
    RETURNED of a case.
    """

    kind: str
    provider: str
    count: int


def _ignore(_: Sequence[CountedOutcomes]) -> None:
    pass


async def count_next(
    database: Database, on_counted: Callable[[Sequence[CountedOutcomes]], None] = _ignore
) -> bool:
    """Count what happened since the last time, or an hour that is over; True where more waits.

    Another process that counts at the moment is left alone. `on_counted` is called after the
    commit, with what was counted for the first time: of a closed hour nothing is told again.
    """
    counted: list[CountedOutcomes] = []
    async with database.transaction() as tx:
        more = await _count(tx, counted)
    on_counted(counted)
    return more


async def _count(tx: Tx, counted: list[CountedOutcomes]) -> bool:
    mark = await tx.row(
        """
        SELECT counted_until, closed_until, clock() AS now
        FROM figure_mark
        FOR UPDATE SKIP LOCKED
        """
    )
    if mark is None:
        return False
    if mark["closed_until"] + _HOUR + CLOSED_AFTER <= mark["now"]:
        await _close_hour(tx, mark["closed_until"])
        return True
    until = mark["now"] - timedelta(seconds=SETTLED_S)
    if until > mark["counted_until"]:
        counted += await _add(tx, mark["counted_until"], until, _SKEW)
        await tx.fetch("UPDATE figure_mark SET counted_until = $1", until)
    return False


async def _close_hour(tx: Tx, hour: datetime) -> None:
    """Count an hour anew, whatever was counted of it before, and forget what is too old."""
    await tx.allow(statement_s=_STATEMENT_S, lock_s=_LOCK_S)
    await tx.fetch("DELETE FROM hourly_figure WHERE hour = $1", hour)
    await tx.fetch("DELETE FROM hourly_figure WHERE hour < $1", hour - KEPT)
    await _add(tx, hour, hour + _HOUR, _SKEW_CLOSED)
    await tx.fetch(
        """
        UPDATE figure_mark
        SET closed_until = $1, counted_until = greatest(counted_until, $1)
        """,
        hour + _HOUR,
    )


async def _add(tx: Tx, since: datetime, until: datetime, skew: timedelta) -> list[CountedOutcomes]:
    """Add what happened from `since` to before `until` to the figures of its hours.

    Test merchants are left out. Payments end once, refunds succeed once, and neither time changes
    afterwards. Captures and attempts have no index by time: their ids are in its order, but for
    the clocks of hosts.
    """
    rows = await tx.fetch(
        "WITH happened AS MATERIALIZED ("
        + _HAPPENED
        + """
        ), figures AS (
            INSERT INTO hourly_figure AS f (hour, subject, kind, value, count, amount)
            SELECT hour,
                CASE WHEN grouping(currency) = 0 THEN 'currency'
                    WHEN grouping(method) = 0 THEN 'method'
                    ELSE 'country' END,
                kind, coalesce(currency, method, country), count(*),
                CASE WHEN grouping(currency) = 0 THEN sum(amount) ELSE 0 END
            FROM happened
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
        FROM happened
        WHERE provider <> ''
        GROUP BY kind, provider
        """,
        since,
        until,
        _first_id(since - skew),
        _first_id(until + skew),
    )
    return [CountedOutcomes(row["kind"], row["provider"], row["count"]) for row in rows]


def _first_id(at: datetime) -> UUID:
    """Return the least of the ids that are made at this time."""
    return UUID(int=int(at.timestamp() * 1000) << 80)


_HAPPENED: LiteralString = """
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
