"""Delete expired data in batches, except data that is still needed.

Each rule has a single query, which is used both to count and to prune. The query scans an index
from which pruned rows disappear, because they are deleted or no longer match a partial index. Ids
are ordered by time, but whether a row has expired depends only on its timestamp.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import LiteralString

from prometheus_client import Counter

from payintent.db.database import Database, Executor
from payintent.db.lists import make_first_id_sql
from payintent.privacy import data_store
from payintent.runtime.log import get_logger
from payintent.runtime.settings import RetentionRule

PRUNED = Counter("payintent_retention_rows_total", "Rows deleted by retention", ["rule"])

_log = get_logger("retention")
_PAUSE_RATIO = 4
_PAUSE_MAX_S = 2.0  # limits how long a worker takes to stop
_CUTOFF: LiteralString = "clock() - $1 * interval '1 day'"
_CUTOFF_ID = make_first_id_sql(_CUTOFF)
#: True if payment `{0}` has no open case, open dispute or pending refund.
_HAS_NO_OPEN_WORK: LiteralString = """
    NOT EXISTS (SELECT FROM money_case m WHERE m.payment_id = {0} AND m.status = 'OPEN')
    AND NOT EXISTS (SELECT FROM refund f WHERE f.payment_id = {0} AND f.status = 'PENDING')
    AND NOT EXISTS (SELECT FROM capture c JOIN dispute q ON q.capture_id = c.id
        WHERE c.payment_id = {0} AND q.state IN ('inquiry', 'open', 'under_review'))
"""
_ENDED_AT: LiteralString = "coalesce(p.paid_at, p.failed_at, p.expired_at, p.cancelled_at)"


def _join_finished_delivery(event_id: LiteralString, lock: LiteralString) -> LiteralString:
    """Join an event's finished delivery. LATERAL prevents a plan that reads all deliveries."""
    return f"""CROSS JOIN LATERAL (
        SELECT FROM delivery d WHERE d.event_id = {event_id} AND d.state <> 'pending' {lock}
    ) d"""


def _select_attempts(lock: LiteralString = "LIMIT 1") -> LiteralString:
    return f"""
        SELECT a.id
        FROM attempt a
        {_join_finished_delivery("a.event_id", lock)}
        WHERE a.id < {_CUTOFF_ID} AND a.started_at <= {_CUTOFF}
        ORDER BY a.id
        LIMIT $2
    """


def _select_events(lock: LiteralString = "LIMIT 1") -> LiteralString:
    return f"""
        SELECT e.id
        FROM event e
        {_join_finished_delivery("e.id", lock)}
        WHERE e.id < {_CUTOFF_ID} AND e.occurred_at <= {_CUTOFF}
            AND {_HAS_NO_OPEN_WORK.format("e.payment_id")}
        ORDER BY e.id
        LIMIT $2
    """


_ADDRESSES: LiteralString = f"""
    SELECT r.id
    FROM chain_receipt r
    LEFT JOIN capture k ON k.receipt_id = r.id
    WHERE r.payer IS NOT NULL AND r.final_at <= {_CUTOFF}
        AND NOT EXISTS (SELECT FROM money_case m
            WHERE m.status = 'OPEN' AND (m.receipt_id = r.id OR m.capture_id = k.id))
        AND NOT EXISTS (SELECT FROM refund f WHERE f.capture_id = k.id AND f.status = 'PENDING')
    ORDER BY r.final_at
    LIMIT $2
"""
_DETAILS: LiteralString = f"""
    SELECT p.id
    FROM payment p
    WHERE p.status NOT IN ('PENDING', 'PROCESSING')
        AND (p.payer_email IS NOT NULL OR p.metadata::text <> '{{}}'
            OR p.return_url IS NOT NULL OR p.cancel_url IS NOT NULL)
        AND {_ENDED_AT} <= {_CUTOFF} AND p.updated_at <= {_CUTOFF}
        AND {_HAS_NO_OPEN_WORK.format("p.id")}
    ORDER BY {_ENDED_AT}
    LIMIT $2
"""
#: The rule for events must already have deleted the payment's events. The subquery prevents a
#: plan that reads all events.
_PAYERS: LiteralString = f"""
    SELECT p.id
    FROM payment p
    WHERE p.status NOT IN ('PENDING', 'PROCESSING')
        AND p.payer_uid <> '(erased)'
        AND {_ENDED_AT} <= {_CUTOFF} AND p.updated_at <= {_CUTOFF}
        AND (SELECT e.id FROM event e WHERE e.payment_id = p.id LIMIT 1) IS NULL
        AND {_HAS_NO_OPEN_WORK.format("p.id")}
    ORDER BY {_ENDED_AT}
    LIMIT $2
"""


async def prune(database: Database, rule: RetentionRule, days: int, limit: int) -> int:
    """Prune up to `limit` rows older than `days`; return their number. Locked rows are skipped."""
    match rule:
        case RetentionRule.ATTEMPTS:
            rows = await database.fetch(_DELETE_ATTEMPTS, days, limit)
        case RetentionRule.EVENTS:
            rows = await database.fetch(_DELETE_EVENTS, days, limit)
        case RetentionRule.PAYER_ADDRESSES:
            rows = await database.fetch(_CLEAR_ADDRESSES, days, limit)
        case RetentionRule.PAYER_DETAILS:
            rows = await database.fetch(_CLEAR_DETAILS, days, limit)
        case RetentionRule.PAYERS:
            return await _erase_payers(database, days, limit)
    return len(rows)


async def count_due(database: Executor, rule: RetentionRule, days: int, limit: int) -> int:
    """Count the rows that `prune` would change now, up to `limit`."""
    match rule:
        case RetentionRule.ATTEMPTS:
            return await database.value(_count(_select_attempts()), days, limit)
        case RetentionRule.EVENTS:
            return await database.value(_count(_select_events()), days, limit)
        case RetentionRule.PAYER_ADDRESSES:
            return await database.value(_count(_ADDRESSES), days, limit)
        case RetentionRule.PAYER_DETAILS:
            return await database.value(_count(_DETAILS), days, limit)
        case RetentionRule.PAYERS:
            return await database.value(_count(_PAYERS), days, limit)


def _count(query: LiteralString) -> LiteralString:
    return f"SELECT count(*) AS due FROM ({query}) due"


async def _erase_payers(database: Database, days: int, limit: int) -> int:
    """Erase payer data from old payments, as the `payer.erase` operation does."""
    async with database.transaction() as tx:
        rows = await tx.fetch(_PAYERS + " FOR UPDATE OF p SKIP LOCKED", days, limit)
        if rows:
            await data_store.erase(tx, [row["id"] for row in rows], {})
    return len(rows)


# Deliveries are locked and rechecked, because a replay may just have made them pending.
_DELETE_ATTEMPTS: LiteralString = f"""
    WITH due AS MATERIALIZED ({_select_attempts("FOR NO KEY UPDATE SKIP LOCKED")})
    DELETE FROM attempt
    WHERE id = ANY(ARRAY(SELECT id FROM due))
    RETURNING 1 AS pruned
"""
_DELETE_EVENTS: LiteralString = f"""
    WITH due AS MATERIALIZED (
        {_select_events("FOR UPDATE SKIP LOCKED")}
    ), attempts AS (
        DELETE FROM attempt WHERE event_id = ANY(ARRAY(SELECT id FROM due))
    ), deliveries AS (
        DELETE FROM delivery WHERE event_id = ANY(ARRAY(SELECT id FROM due))
    )
    DELETE FROM event
    WHERE id = ANY(ARRAY(SELECT id FROM due))
    RETURNING 1 AS pruned
"""
_CLEAR_ADDRESSES: LiteralString = f"""
    WITH due AS MATERIALIZED (
        {_ADDRESSES}
        FOR NO KEY UPDATE OF r SKIP LOCKED
    )
    UPDATE chain_receipt
    SET payer = NULL
    WHERE id = ANY(ARRAY(SELECT id FROM due))
    RETURNING 1 AS pruned
"""
_CLEAR_DETAILS: LiteralString = f"""
    WITH due AS MATERIALIZED (
        {_DETAILS}
        FOR NO KEY UPDATE OF p SKIP LOCKED
    )
    UPDATE payment
    SET payer_email = NULL, metadata = '{{}}', return_url = NULL, cancel_url = NULL
    WHERE id = ANY(ARRAY(SELECT id FROM due))
    RETURNING 1 AS pruned
"""


async def pause_after_batch(started_s: float) -> None:
    """Pause for four times the duration of the batch, up to two seconds.

    Background work therefore occupies a connection for at most a fifth of the time, unless batches
    are slow.
    """
    elapsed_s = time.monotonic() - started_s
    await asyncio.sleep(min(_PAUSE_RATIO * elapsed_s, _PAUSE_MAX_S))


async def prune_step(database: Database, days: Mapping[RetentionRule, int], limit: int) -> bool:
    """Prune a batch for each rule; return whether more may remain.

    A period of 0 days disables a rule.
    """
    started_s = time.monotonic()
    has_more = False
    for rule, period in days.items():
        if period == 0:
            continue
        pruned_count = await prune(database, rule, period, limit)
        if pruned_count:
            PRUNED.labels(rule).inc(pruned_count)
            _log.info("retention_pruned", rule=rule, count=pruned_count, days=period)
        has_more |= pruned_count == limit
    if has_more:
        await pause_after_batch(started_s)
    return has_more
