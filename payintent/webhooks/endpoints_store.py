"""Queries on webhook endpoints: pending deliveries, circuit state and recent responses."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from typing import LiteralString
from uuid import UUID

from payintent.db.database import Executor, Row
from payintent.webhooks.model import AttemptOutcome, CircuitReport

COUNT_MAX = 1_000  # deliveries per endpoint and state
_RECENT_EVENTS = 20  # events per endpoint that the attempt statistics cover
_ATTEMPTS_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointAttempt:
    event_id: UUID
    at: datetime
    outcome: str
    status: int | None
    detail: str
    answer: str
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRecord:
    merchant_id: int
    merchant_name: str
    callback_url: str | None
    pending: int  # at most `COUNT_MAX`, like `dead` and `skipped`
    late_s: int | None  # seconds since the earliest pending delivery became due
    dead: int
    skipped: int
    attempts: int  # to deliver the last 20 events
    delivered: int  # number of these attempts that succeeded
    median_ms: int | None
    p95_ms: int | None  # 95th percentile
    slowest_ms: int | None
    open_since: datetime | None  # None: the circuit is closed
    open_until: datetime | None  # when the next attempt may be made
    trips: int  # how many times in a row the circuit has opened
    open_detail: str | None  # outcome of the attempt that opened the circuit
    last_at: datetime | None
    last_outcome: str | None
    last_status: int | None
    last_detail: str | None
    last_answer: str | None
    answers: list[EndpointAttempt]  # the five most recent, newest first


_ENDPOINTS: LiteralString = """
    SELECT m.id AS merchant_id, m.name AS merchant_name, m.callback_url, p.pending,
        greatest(0, extract(epoch FROM clock() - p.due))::int AS late_s, x.dead, y.skipped,
        coalesce(r.attempts, 0) AS attempts, coalesce(r.delivered, 0) AS delivered,
        r.median_ms, r.p95_ms, r.slowest_ms, o.since AS open_since, o.until AS open_until,
        coalesce(o.trips, 0) AS trips, o.detail AS open_detail
    FROM (
        SELECT id, name, callback_url
        FROM merchant
        WHERE (id = $1 OR $1::bigint IS NULL) AND id > $2
        ORDER BY id
        LIMIT $3
    ) m
    CROSS JOIN LATERAL (
        SELECT count(*) AS pending, min(next_at) FILTER (WHERE next_at <= clock()) AS due
        FROM (
            SELECT next_at
            FROM delivery
            WHERE state = 'pending' AND merchant_id = m.id
            ORDER BY next_at
            LIMIT $4
        ) w
    ) p
    CROSS JOIN LATERAL (
        SELECT count(*) AS dead
        FROM (
            SELECT
            FROM delivery
            WHERE state IN ('dead', 'skipped') AND state = 'dead' AND merchant_id = m.id
            LIMIT $4
        ) w
    ) x
    CROSS JOIN LATERAL (
        SELECT count(*) AS skipped
        FROM (
            SELECT
            FROM delivery
            WHERE state IN ('dead', 'skipped') AND state = 'skipped' AND merchant_id = m.id
            LIMIT $4
        ) w
    ) y
    CROSS JOIN LATERAL (
        SELECT array_agg(id) AS event_ids
        FROM (
            SELECT id FROM event WHERE merchant_id = m.id ORDER BY id DESC LIMIT $5
        ) w
    ) e
    LEFT JOIN LATERAL (
        SELECT count(*) AS attempts,
            count(*) FILTER (WHERE a.outcome = 'delivered') AS delivered,
            (percentile_disc(0.5) WITHIN GROUP (ORDER BY a.duration_ms))::int AS median_ms,
            (percentile_disc(0.95) WITHIN GROUP (ORDER BY a.duration_ms))::int AS p95_ms,
            max(a.duration_ms) AS slowest_ms
        FROM unnest(e.event_ids) AS i (id)
        CROSS JOIN LATERAL (
            SELECT outcome, duration_ms
            FROM attempt
            WHERE event_id = i.id
            ORDER BY id DESC
            LIMIT 5
        ) a
    ) r ON true
    LEFT JOIN endpoint_outage o ON o.merchant_id = m.id
    ORDER BY m.id
    LIMIT $3
"""
_ATTEMPTS: LiteralString = """
    SELECT m.id AS merchant_id, a.event_id, a.started_at AS at, a.outcome, a.status, a.detail,
        a.answer, a.duration_ms
    FROM unnest($1::bigint[]) AS m (id)
    CROSS JOIN LATERAL (
        SELECT t.id, e.id AS event_id, t.started_at, t.outcome, t.status, t.detail, t.answer,
            t.duration_ms
        FROM (
            SELECT id FROM event WHERE merchant_id = m.id ORDER BY id DESC LIMIT $2
        ) e
        CROSS JOIN LATERAL (
            SELECT id, started_at, outcome, status, detail, answer, duration_ms
            FROM attempt
            WHERE event_id = e.id
            ORDER BY id DESC
            LIMIT $3
        ) t
        ORDER BY t.id DESC
        LIMIT $3
    ) a
    ORDER BY m.id, a.id DESC
    LIMIT $4
"""


async def list_endpoints(
    database: Executor, merchant_id: int | None, after: int, limit: int
) -> list[EndpointRecord]:
    """List endpoints by ascending merchant ID, starting after `after`.

    If `merchant_id` is set, only that merchant's endpoint is listed.
    """
    rows = await database.fetch(_ENDPOINTS, merchant_id, after, limit, COUNT_MAX, _RECENT_EVENTS)
    attempts = await _list_attempts(database, [row["merchant_id"] for row in rows])
    return [_to_record(row, attempts[row["merchant_id"]]) for row in rows]


async def _list_attempts(
    database: Executor, merchant_ids: Sequence[int]
) -> defaultdict[int, list[EndpointAttempt]]:
    limit = _ATTEMPTS_MAX * len(merchant_ids)
    rows = await database.fetch(_ATTEMPTS, merchant_ids, _RECENT_EVENTS, _ATTEMPTS_MAX, limit)
    attempts = defaultdict[int, list[EndpointAttempt]](list)
    for row in rows:
        fields = dict(row)
        attempts[fields.pop("merchant_id")].append(EndpointAttempt(**fields))
    return attempts


def _to_record(row: Row, attempts: list[EndpointAttempt]) -> EndpointRecord:
    last_attempt = attempts[0] if attempts else None
    return EndpointRecord(
        **row,
        last_at=last_attempt and last_attempt.at,
        last_outcome=last_attempt and last_attempt.outcome,
        last_status=last_attempt and last_attempt.status,
        last_detail=last_attempt and last_attempt.detail,
        last_answer=last_attempt and last_attempt.answer,
        answers=attempts,
    )


_DELIVERIES_SEARCHED = 1_000  # when searching for the last success
_HEALTH_ATTEMPTS_MAX = 20  # per event


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentAttempt:
    at: datetime
    outcome: str
    status: int | None
    detail: str

    @property
    def is_delivered(self) -> bool:
        return self.outcome == AttemptOutcome.DELIVERED


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointHealth:
    """A merchant's endpoint, as shown to the merchant."""

    callback_url: str | None
    pending: int  # at most `COUNT_MAX`, like `dead`
    dead: int
    next_at: datetime | None  # when the next pending delivery is due; may be in the past
    last_success_at: datetime | None  # None: not in the last 1,000 events
    failing_since: datetime | None  # None: the last attempt succeeded
    last_failure: RecentAttempt | None  # None: the last attempt succeeded


# As in `KeysetList`, only the index by merchant returns the rows in this order.
_HEALTH: LiteralString = """
    SELECT m.callback_url, p.pending, x.dead, s.delivered_at, o.since AS open_since,
        CASE WHEN p.pending > 0 THEN greatest(p.next_at, o.until) END AS next_at
    FROM merchant m
    CROSS JOIN LATERAL (
        SELECT count(*) AS pending, min(next_at) AS next_at
        FROM (
            SELECT next_at
            FROM delivery
            WHERE state = 'pending' AND merchant_id = m.id
            ORDER BY next_at
            LIMIT $2
        ) w
    ) p
    CROSS JOIN LATERAL (
        SELECT count(*) AS dead
        FROM (
            SELECT
            FROM delivery
            WHERE state IN ('dead', 'skipped') AND state = 'dead' AND merchant_id = m.id
            LIMIT $2
        ) w
    ) x
    LEFT JOIN LATERAL (
        SELECT d.delivered_at
        FROM (
            SELECT id
            FROM event
            WHERE merchant_id BETWEEN m.id AND m.id
            ORDER BY merchant_id DESC, id DESC
            LIMIT $3
        ) e
        CROSS JOIN LATERAL (
            SELECT delivered_at
            FROM delivery
            WHERE event_id = e.id AND state = 'delivered'
            LIMIT 1
        ) d
        LIMIT 1
    ) s ON true
    LEFT JOIN endpoint_outage o ON o.merchant_id = m.id
    WHERE m.id = $1
"""
_RECENT_ATTEMPTS: LiteralString = """
    SELECT a.started_at AS at, a.outcome, a.status, a.detail
    FROM (
        SELECT id
        FROM event
        WHERE merchant_id BETWEEN $1 AND $1
        ORDER BY merchant_id DESC, id DESC
        LIMIT $2
    ) e
    CROSS JOIN LATERAL (
        SELECT id, started_at, outcome, status, detail
        FROM attempt
        WHERE event_id = e.id
        ORDER BY id DESC
        LIMIT $3
    ) a
    ORDER BY a.started_at DESC, a.id DESC
    LIMIT 1000
"""


async def get_endpoint_health(database: Executor, merchant_id: int) -> EndpointHealth:
    row = await database.row(_HEALTH, merchant_id, COUNT_MAX, _DELIVERIES_SEARCHED)
    assert row is not None  # noqa: S101 - merchants are never deleted
    attempts = await database.fetch(
        _RECENT_ATTEMPTS, merchant_id, _RECENT_EVENTS, _HEALTH_ATTEMPTS_MAX
    )
    return describe_endpoint_health(
        EndpointHealth(
            callback_url=row["callback_url"],
            pending=row["pending"],
            dead=row["dead"],
            next_at=row["next_at"],
            last_success_at=row["delivered_at"],
            failing_since=row["open_since"],
            last_failure=None,
        ),
        [RecentAttempt(**attempt) for attempt in attempts],
    )


def describe_endpoint_health(
    health: EndpointHealth, attempts: Sequence[RecentAttempt]
) -> EndpointHealth:
    """Complete `health` with the results of `attempts`, which are sorted newest first.

    An endpoint has been failing since the first failed attempt after its last success, or since its
    circuit opened if that was earlier.
    """
    successes = [attempt.at for attempt in attempts if attempt.is_delivered]
    if health.last_success_at is not None:
        successes.append(health.last_success_at)
    last_success_at = max(successes, default=None)
    failures = list(takewhile(lambda attempt: not attempt.is_delivered, attempts))
    if not failures:
        return replace(health, last_success_at=last_success_at, failing_since=None)
    times = [failures[-1].at, health.failing_since]
    return replace(
        health,
        last_success_at=last_success_at,
        failing_since=min(filter(None, times)),
        last_failure=failures[0],
    )


_DETAIL_CHARS_MAX = 300


async def open_circuit(database: Executor, report: CircuitReport) -> None:
    """Record that a circuit has opened, and count consecutive openings."""
    await database.fetch(
        """
        INSERT INTO endpoint_outage AS o (merchant_id, until, detail)
        VALUES ($1, clock() + $2 * interval '1 second', $3)
        ON CONFLICT (merchant_id) DO UPDATE
        SET trips = o.trips + 1, until = greatest(o.until, excluded.until),
            detail = excluded.detail
        """,
        report.merchant_id,
        report.open_s,
        report.detail[:_DETAIL_CHARS_MAX],
    )


async def close_circuit(database: Executor, merchant_id: int) -> None:
    """Delete the outage record of an endpoint that accepts deliveries again."""
    await database.fetch("DELETE FROM endpoint_outage WHERE merchant_id = $1", merchant_id)


async def delete_old(database: Executor, limit: int) -> int:
    """Delete up to `limit` outages whose `until` passed more than an hour ago; return the count.

    Workers discard the in-memory state of an idle endpoint after the same period.
    """
    rows = await database.fetch(
        """
        DELETE FROM endpoint_outage
        WHERE merchant_id IN (
            SELECT merchant_id
            FROM endpoint_outage
            WHERE until < clock() - interval '1 hour'
            LIMIT $1
            FOR UPDATE SKIP LOCKED
        )
        RETURNING merchant_id
        """,
        limit,
    )
    return len(rows)
