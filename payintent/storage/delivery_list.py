"""Deliveries as an operator lists them, and how the endpoint of each merchant does.

What an index gives in the order of the list is read from there; of anything else the newest so
many are looked through.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from payintent.storage.database import Executor
from payintent.storage.outbox import DeliveryRecord

#: Deliveries of an endpoint that are counted; and events whose attempts tell how it does.
COUNTED_MAX, _RECENT_EVENTS = 1_000, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    """Which deliveries to list, newest first; None means any, `before` ends the last page."""

    merchant_id: int | None = None
    state: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    tried: bool = False  # those alone that at least one attempt was made for
    before: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRecord:
    """Where a merchant's webhooks go, what waits for it, and how its last attempts ended."""

    merchant_id: int
    merchant_name: str
    callback_url: str | None
    pending: int  # counted up to `COUNTED_MAX`, as `dead` and `skipped` are
    late_s: int | None  # for how long the first of them has been due
    dead: int
    skipped: int
    attempts: int  # of the last 20 events
    delivered: int  # of these attempts
    median_ms: int | None
    slowest_ms: int | None
    last_at: datetime | None
    last_outcome: str | None
    last_status: int | None
    last_detail: str | None
    last_answer: str | None


# One row at a time by its key, in the order of the list: what is not shown is not read.
_SHOWN: LiteralString = """
    SELECT w.event_id, e.type, e.payment_id, d.merchant_id, d.state, d.attempts, d.next_at,
        e.occurred_at
    FROM wanted w
    CROSS JOIN LATERAL (
        SELECT merchant_id, state, attempts, next_at
        FROM delivery
        WHERE event_id = w.event_id
        LIMIT 1
    ) d
    CROSS JOIN LATERAL (
        SELECT type, payment_id, occurred_at
        FROM event
        WHERE id = w.event_id
        LIMIT 1
    ) e
    WHERE ($1::bigint IS NULL OR d.merchant_id = $1)
        AND ($2::text IS NULL OR d.state = $2)
        AND ($3::timestamptz IS NULL OR e.occurred_at >= $3)
        AND ($4::timestamptz IS NULL OR e.occurred_at < $4)
        AND (NOT $7::boolean OR d.attempts > 0)
    ORDER BY w.event_id DESC
    LIMIT $6
"""
_END: LiteralString = "coalesce($5::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')"
_MERCHANTS: LiteralString = """
            FROM (SELECT id FROM merchant WHERE id = $1 OR $1::bigint IS NULL LIMIT 100000) m
"""
_MISSED: LiteralString = (
    """
    WITH wanted AS (
        SELECT o.event_id"""
    + _MERCHANTS
    + """
        CROSS JOIN LATERAL (
            SELECT event_id
            FROM delivery
            WHERE state IN ('dead', 'skipped') AND state = $2 AND merchant_id = m.id
                AND event_id < """
    + _END
    + """
            ORDER BY event_id DESC
            LIMIT 10000
        ) o
        ORDER BY o.event_id DESC
        LIMIT 10000
    )"""
)
_PENDING: LiteralString = (
    """
    WITH wanted AS (
        SELECT o.event_id"""
    + _MERCHANTS
    + """
        CROSS JOIN LATERAL (
            SELECT event_id
            FROM delivery
            WHERE state = 'pending' AND merchant_id = m.id
            ORDER BY next_at
            LIMIT 10000
        ) o
        WHERE o.event_id < """
    + _END
    + """
        ORDER BY o.event_id DESC
        LIMIT 10000
    )"""
)
_OF_ALL: LiteralString = (
    """
    WITH wanted AS (
        SELECT id AS event_id
        FROM event
        WHERE id < """
    + _END
    + """
        ORDER BY id DESC
        LIMIT 10000
    )"""
)
_OF_MERCHANT: LiteralString = (
    """
    WITH wanted AS (
        SELECT id AS event_id
        FROM event
        WHERE merchant_id = $1 AND id < """
    + _END
    + """
        ORDER BY id DESC
        LIMIT 10000
    )"""
)


async def list_deliveries(
    database: Executor, wanted: DeliveryFilter, limit: int
) -> list[DeliveryRecord]:
    """List deliveries, newest first."""
    values = (
        wanted.merchant_id,
        wanted.state,
        wanted.since,
        wanted.until,
        wanted.before,
        limit,
        wanted.tried,
    )
    if wanted.state in {"dead", "skipped"}:
        rows = await database.fetch(_MISSED + _SHOWN, *values)
    elif wanted.state == "pending":
        rows = await database.fetch(_PENDING + _SHOWN, *values)
    elif wanted.merchant_id is not None:
        rows = await database.fetch(_OF_MERCHANT + _SHOWN, *values)
    else:
        rows = await database.fetch(_OF_ALL + _SHOWN, *values)
    return [DeliveryRecord(**row) for row in rows]


_ENDPOINTS: LiteralString = """
    SELECT m.id AS merchant_id, m.name AS merchant_name, m.callback_url, p.pending,
        greatest(0, extract(epoch FROM clock() - p.due))::int AS late_s, x.dead, y.skipped,
        coalesce(r.attempts, 0) AS attempts, coalesce(r.delivered, 0) AS delivered,
        r.median_ms, r.slowest_ms, l.started_at AS last_at, l.outcome AS last_outcome,
        l.status AS last_status, l.detail AS last_detail, l.answer AS last_answer
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
    LEFT JOIN LATERAL (
        SELECT a.started_at, a.outcome, a.status, a.detail, a.answer
        FROM unnest(e.event_ids) AS i (id)
        CROSS JOIN LATERAL (
            SELECT id, started_at, outcome, status, detail, answer
            FROM attempt
            WHERE event_id = i.id
            ORDER BY id DESC
            LIMIT 1
        ) a
        ORDER BY a.id DESC
        LIMIT 1
    ) l ON true
    ORDER BY m.id
    LIMIT $3
"""


async def list_endpoints(
    database: Executor, merchant_id: int | None, after: int, limit: int
) -> list[EndpointRecord]:
    """List the endpoints of merchants by the merchant's number, from one on or of one alone."""
    rows = await database.fetch(
        _ENDPOINTS,
        merchant_id,
        after,
        limit,
        COUNTED_MAX,
        _RECENT_EVENTS,
    )
    return [EndpointRecord(**row) for row in rows]
