"""Read the console's overview in a single statement, and the values of some gauges."""

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString, TypeVar

import msgspec

from payintent.chains.watch_store import IS_WATCHED
from payintent.db.database import Executor, Row
from payintent.webhooks.outbox_store import WAITING_MERCHANTS

#: Maximum value of a queue count.
QUEUE_COUNT_MAX = 100
#: Maximum value of a count in the overview.
COUNT_MAX = 2_000
_METRIC_COUNT_MAX = 10_000


class HourFigure(msgspec.Struct, frozen=True, kw_only=True):
    """The number and total amount of outcomes, by hour, kind and currency."""

    hour: datetime
    kind: str
    currency: str
    count: int
    amount: str  # in currency units; disputes in minor units


class ConversionFigure(msgspec.Struct, frozen=True, kw_only=True):
    """The number of payments by outcome, and by method or country."""

    subject: str  # "method" or "country"
    value: str  # the method or country; empty if no method was selected
    kind: str
    counts: tuple[int, int, int]  # in the last 24 hours, 7 days and 30 days


class OutageFigure(msgspec.Struct, frozen=True, kw_only=True):
    account_id: int
    provider: str
    name: str
    channel: str
    since: datetime


class ChainFigure(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of reading a chain."""

    chain: str
    name: str
    block: int
    at: datetime | None
    head: int | None
    head_at: datetime | None
    polled_at: datetime | None
    halted: str | None
    watched: bool


class WaitingFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Pending work. Each count is capped at `COUNT_MAX`."""

    cases: int
    oldest_case_at: datetime | None
    approvals: int
    refund_approvals: int
    oldest_processing_at: datetime | None
    deliveries_waiting: int
    deliveries_late: int  # waiting deliveries that have failed at least once
    deliveries_dead: int


class QueueFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The entries in each of the operators' queues. Each count is capped at `QUEUE_COUNT_MAX`."""

    cases: int
    refunds: int
    disputes: int
    deliveries_dead: int
    approvals: int  # proposals; the refunds that need approval are counted in `refunds`


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    now: datetime
    counted_until: datetime
    closed_until: datetime  # earlier hours no longer change
    since: tuple[datetime, datetime, datetime]  # start of the last 24 hours, 7 days and 30 days
    hours: list[HourFigure]
    conversion: list[ConversionFigure] | None  # None if not requested
    waiting: WaitingFigures
    outages: list[OutageFigure]
    chains: list[ChainFigure]


T = TypeVar("T")


async def read_overview(
    database: Executor, hours_since: datetime | None, *, with_conversion: bool
) -> Overview:
    """Read pending work and the hourly figures since `hours_since` (default: 30 days ago).

    Conversion figures aggregate a month of rows, so request them less often.
    """
    row = await database.row(
        f"""
        SELECT clock() AS now, m.counted_until, m.closed_until, t.day, t.week, t.month,
            {_HOURS}, {_CONVERSION}, {_WAITING}, {_OUTAGES}, {_CHAINS}
        FROM figure_mark m
        CROSS JOIN LATERAL (
            SELECT date_bin('1 hour', clock(), '2000-01-01 00:00:00+00') - interval '23 hours'
                    AS day,
                date_bin('6 hours', clock(), '2000-01-01 00:00:00+00') - interval '162 hours'
                    AS week,
                date_bin('1 day', clock(), '2000-01-01 00:00:00+00') - interval '696 hours'
                    AS month
        ) t
        """,
        hours_since,
        with_conversion,
        COUNT_MAX,
    )
    assert row is not None  # noqa: S101 - written by a migration
    conversion = _decode(row, "conversion", list[ConversionFigure])
    return Overview(
        now=row["now"],
        counted_until=row["counted_until"],
        closed_until=row["closed_until"],
        since=(row["day"], row["week"], row["month"]),
        hours=_decode(row, "hours", list[HourFigure]),
        conversion=conversion if with_conversion else None,
        waiting=_decode(row, "waiting", WaitingFigures),
        outages=_decode(row, "outages", list[OutageFigure]),
        chains=_decode(row, "chains", list[ChainFigure]),
    )


def _decode(row: Row, name: str, model: type[T]) -> T:
    return msgspec.json.decode(row[name], type=model)


_HOURS: LiteralString = """
    (SELECT coalesce(json_agg(f), '[]')
    FROM (
        SELECT hour, kind, value AS currency, count, amount::text AS amount
        FROM hourly_figure
        WHERE hour >= coalesce($1, t.month) AND subject = 'currency'
        LIMIT 100000
    ) f) AS hours
"""
_CONVERSION: LiteralString = """
    (SELECT coalesce(json_agg(f), '[]')
    FROM (
        SELECT subject, value, kind, json_build_array(
                coalesce(sum(count) FILTER (WHERE hour >= t.day), 0),
                coalesce(sum(count) FILTER (WHERE hour >= t.week), 0),
                sum(count)
            ) AS counts
        FROM hourly_figure
        WHERE $2 AND hour >= t.month AND subject IN ('method', 'country')
        GROUP BY subject, value, kind
        LIMIT 10000
    ) f) AS conversion
"""
# Failed deliveries have no index by age. Scheduled retries are counted per merchant, so that a
# large backlog does not hide other merchants. Due deliveries are counted only among the first
# `COUNT_MAX` pending deliveries.
_WAITING: LiteralString = f"""
    (SELECT json_build_object(
        'cases', (SELECT count(*)
            FROM (SELECT FROM money_case WHERE status = 'OPEN' LIMIT $3) c),
        'oldest_case_at', (SELECT opened_at
            FROM money_case
            WHERE status = 'OPEN'
            ORDER BY id
            LIMIT 1),
        'approvals', (SELECT count(*)
            FROM (SELECT
                FROM proposal
                WHERE sealed IS NOT NULL AND status = 'WAITING' AND expires_at > clock()
                LIMIT $3) p),
        'refund_approvals', (SELECT count(*)
            FROM (SELECT FROM refund WHERE step = 'approval' LIMIT $3) r),
        'oldest_processing_at', (SELECT created_at
            FROM payment
            WHERE status = 'PROCESSING'
            ORDER BY created_at
            LIMIT 1),
        'deliveries_dead', (SELECT count(*)
            FROM (SELECT FROM delivery WHERE state = 'dead' LIMIT $3) d),
        'deliveries_waiting', d.waiting,
        'deliveries_late', least($3, d.due + ({WAITING_MERCHANTS}
            SELECT count(*)
            FROM (
                SELECT
                FROM waiting w
                CROSS JOIN LATERAL (
                    SELECT
                    FROM delivery
                    WHERE state = 'pending' AND merchant_id = w.merchant_id AND next_at > clock()
                        AND attempts > 0
                    LIMIT $3
                ) retry
                LIMIT $3
            ) later))
    )
    FROM (
        SELECT count(*) AS waiting,
            count(*) FILTER (WHERE attempts > 0 AND next_at <= clock()) AS due
        FROM (SELECT attempts, next_at FROM delivery WHERE state = 'pending' LIMIT $3) first
    ) d) AS waiting
"""
_OUTAGES: LiteralString = """
    (SELECT coalesce(json_agg(o), '[]')
    FROM (
        SELECT g.account_id, a.provider, a.name, g.channel, g.since
        FROM gateway_outage g
        JOIN provider_account a ON a.id = g.account_id
        ORDER BY g.since, g.account_id, g.channel
        LIMIT 100
    ) o) AS outages
"""
_CHAINS: LiteralString = f"""
    (SELECT coalesce(json_agg(f), '[]')
    FROM (
        SELECT k.chain, c.name, k.block, k.at, k.head, k.head_at, k.polled_at, k.halted,
            {IS_WATCHED} AS watched
        FROM chain_cursor k
        JOIN chain c ON c.slug = k.chain
        ORDER BY k.chain
        LIMIT 100
    ) f) AS chains
"""


async def count_queues(database: Executor) -> QueueFigures:
    """Count open work in each queue. Each count reads up to 100 entries of a partial index."""
    row = await database.row(
        """
        SELECT (SELECT count(*)
                FROM (SELECT FROM money_case WHERE status = 'OPEN' LIMIT $1) c) AS cases,
            (SELECT count(*)
                FROM (SELECT FROM refund WHERE step = 'approval' LIMIT $1) r) AS refunds,
            (SELECT count(*)
                FROM (SELECT
                    FROM dispute
                    WHERE state IN ('inquiry', 'open', 'under_review')
                    LIMIT $1) d) AS disputes,
            (SELECT count(*)
                FROM (SELECT FROM delivery WHERE state = 'dead' LIMIT $1) e) AS deliveries_dead,
            (SELECT count(*)
                FROM (SELECT
                    FROM proposal
                    WHERE sealed IS NOT NULL AND status = 'WAITING' AND expires_at > clock()
                    LIMIT $1) p) AS approvals
        """,
        QUEUE_COUNT_MAX,
    )
    assert row is not None  # noqa: S101 - a SELECT without FROM returns a row
    return QueueFigures(**row)


async def get_webhook_overdue_s(database: Executor) -> float:
    """Return by how many seconds the oldest delivery is overdue. Probes an index per merchant."""
    return await database.value(
        WAITING_MERCHANTS
        + """
        SELECT greatest(0, extract(epoch FROM clock() - min(next_at)))::float8 AS overdue_s
        FROM waiting
        """
    )


async def get_pending_overdue_s(database: Executor) -> float:
    """Return how many seconds the oldest PENDING payment is past its deadline, or 0."""
    overdue_s = await database.value(
        """
        SELECT extract(epoch FROM clock() - expires_at)::float8 AS overdue_s
        FROM payment
        WHERE status = 'PENDING' AND expires_at < clock()
        ORDER BY expires_at
        LIMIT 1
        """
    )
    return overdue_s or 0.0


async def measure_open_cases(database: Executor) -> dict[tuple[str, str], tuple[int, float]]:
    """Count up to 10,000 open cases, the oldest first, by kind and provider.

    Also returns the age of the oldest case in seconds, without disputes that the bank is reviewing.
    The provider is `none` for cases without a capture.
    """
    rows = await database.fetch(
        """
        SELECT o.kind, coalesce(a.provider, 'none') AS provider, count(*) AS cases,
            coalesce(extract(epoch FROM clock() - min(o.opened_at)
                FILTER (WHERE d.state IS DISTINCT FROM 'under_review')), 0)::float8 AS oldest_s
        FROM (
            SELECT id, kind, capture_id, opened_at
            FROM money_case
            WHERE status = 'OPEN'
                AND (merchant_id IS NULL
                    OR merchant_id NOT IN (SELECT id FROM merchant WHERE NOT livemode))
            ORDER BY id
            LIMIT $1
        ) o
        LEFT JOIN dispute d ON d.case_id = o.id
        LEFT JOIN capture c ON c.id = o.capture_id
        LEFT JOIN provider_account a ON a.id = c.account_id
        GROUP BY 1, 2
        """,
        _METRIC_COUNT_MAX,
    )
    return {(row["kind"], row["provider"]): (row["cases"], row["oldest_s"]) for row in rows}


async def count_deliveries(database: Executor) -> dict[str, int]:
    """Count pending, dead and skipped deliveries, up to 10,000 of each."""
    rows = await database.fetch(
        """
        SELECT 'pending' AS state, count(*) AS deliveries
        FROM (SELECT FROM delivery WHERE state = 'pending' LIMIT $1) pending
        UNION ALL
        SELECT 'dead', count(*)
        FROM (
            SELECT FROM delivery WHERE state IN ('dead', 'skipped') AND state = 'dead' LIMIT $1
        ) dead
        UNION ALL
        SELECT 'skipped', count(*)
        FROM (
            SELECT FROM delivery WHERE state IN ('dead', 'skipped') AND state = 'skipped' LIMIT $1
        ) skipped
        """,
        _METRIC_COUNT_MAX,
    )
    return {row["state"]: row["deliveries"] for row in rows}
