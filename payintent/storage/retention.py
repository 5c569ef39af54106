"""What is forgotten after a time, a batch at a time, but for what is still needed.

Each rule is one condition, which is counted by the same words that it is pruned by. A rule begins
at an index, so that what was pruned before is not read again: ids have the order of their time,
and what loses a value leaves a partial index. The times in the rows decide, never those of ids.
"""

from typing import LiteralString

from payintent.domain.retention import RetentionRule
from payintent.storage import payer_erasure
from payintent.storage.database import Database, Executor

#: The id before all those of the last `$1` days; 1970 is the earliest.
_IDS_BEFORE: LiteralString = """(lpad(to_hex(greatest(0,
    extract(epoch FROM clock() - $1 * interval '1 day') * 1000)::bigint), 12, '0')
    || repeat('0', 20))::uuid"""
_LONG_AGO: LiteralString = "clock() - $1 * interval '1 day'"
_COUNT: LiteralString = "SELECT count(*) AS due FROM ("
#: No case or dispute of the payment is open, and no refund of it is under way.
_AT_REST: LiteralString = """
    NOT EXISTS (SELECT FROM money_case m WHERE m.payment_id = {0} AND m.status = 'OPEN')
    AND NOT EXISTS (SELECT FROM refund f WHERE f.payment_id = {0} AND f.status = 'PENDING')
    AND NOT EXISTS (SELECT FROM capture c JOIN dispute q ON q.capture_id = c.id
        WHERE c.payment_id = {0} AND q.state IN ('inquiry', 'open', 'under_review'))
"""

#: Each delivery is looked up: a join may read all of them.
_DELIVERED: LiteralString = """ CROSS JOIN LATERAL (
        SELECT FROM delivery d WHERE d.event_id = {event_id} AND d.state <> 'pending' {lock}
    ) d """

_ATTEMPTS: LiteralString = (
    "SELECT a.id FROM attempt a"
    + _DELIVERED.replace("{event_id}", "a.event_id")
    + "WHERE a.id < "
    + _IDS_BEFORE
    + " AND a.started_at <= "
    + _LONG_AGO
    + " ORDER BY a.id LIMIT $2"
)
_EVENTS: LiteralString = (
    "SELECT e.id FROM event e"
    + _DELIVERED.replace("{event_id}", "e.id")
    + "WHERE e.id < "
    + _IDS_BEFORE
    + " AND e.occurred_at <= "
    + _LONG_AGO
    + " AND "
    + _AT_REST.format("e.payment_id")
    + " ORDER BY e.id LIMIT $2"
)
_ADDRESSES: LiteralString = (
    """
    SELECT r.id
    FROM chain_receipt r
    LEFT JOIN capture k ON k.receipt_id = r.id
    WHERE r.payer IS NOT NULL AND r.final_at <= """
    + _LONG_AGO
    + """
        AND NOT EXISTS (SELECT FROM money_case m
            WHERE m.status = 'OPEN' AND (m.receipt_id = r.id OR m.capture_id = k.id))
        AND NOT EXISTS (SELECT FROM refund f WHERE f.capture_id = k.id AND f.status = 'PENDING')
    ORDER BY r.final_at
    LIMIT $2
"""
)
_DETAILS: LiteralString = (
    """
    SELECT p.id
    FROM payment p
    WHERE p.status NOT IN ('PENDING', 'PROCESSING')
        AND (p.payer_email IS NOT NULL OR p.metadata::text <> '{}')
        AND coalesce(p.paid_at, p.failed_at, p.expired_at, p.cancelled_at) <= """
    + _LONG_AGO
    + " AND p.updated_at <= "
    + _LONG_AGO
    + " AND "
    + _AT_REST.format("p.id")
    + """
    ORDER BY coalesce(p.paid_at, p.failed_at, p.expired_at, p.cancelled_at)
    LIMIT $2
"""
)
#: Its event is gone before, by the rule of events. It is looked up: a join may read all of them.
_PAYERS: LiteralString = (
    """
    SELECT p.id
    FROM payment p
    WHERE p.status NOT IN ('PENDING', 'PROCESSING')
        AND p.payer_uid <> '(erased)'
        AND coalesce(p.paid_at, p.failed_at, p.expired_at, p.cancelled_at) <= """
    + _LONG_AGO
    + " AND p.updated_at <= "
    + _LONG_AGO
    + " AND (SELECT e.id FROM event e WHERE e.payment_id = p.id LIMIT 1) IS NULL AND "
    + _AT_REST.format("p.id")
    + """
    ORDER BY coalesce(p.paid_at, p.failed_at, p.expired_at, p.cancelled_at)
    LIMIT $2
"""
)


async def prune(database: Database, rule: RetentionRule, days: int, limit: int) -> int:
    """Take away at most `limit` of what is older than `days`; returns how many there were.

    What others hold locked is left for the next time.
    """
    match rule:
        case RetentionRule.ATTEMPTS:
            rows = await database.fetch(_DELETE_ATTEMPTS, days, limit)
        case RetentionRule.EVENTS:
            rows = await database.fetch(_DELETE_EVENTS, days, limit)
        case RetentionRule.PAYER_ADDRESSES:
            rows = await database.fetch(_FORGET_ADDRESSES, days, limit)
        case RetentionRule.PAYER_DETAILS:
            rows = await database.fetch(_FORGET_DETAILS, days, limit)
        case RetentionRule.PAYERS:
            return await _erase_payers(database, days, limit)
    return len(rows)


async def count_due(database: Executor, rule: RetentionRule, days: int, limit: int) -> int:
    """Count what the rule would take away now, up to `limit`; changes nothing."""
    match rule:
        case RetentionRule.ATTEMPTS:
            row = await database.row(
                _COUNT + _ATTEMPTS.replace("{lock}", "LIMIT 1") + ") due", days, limit
            )
        case RetentionRule.EVENTS:
            row = await database.row(
                _COUNT + _EVENTS.replace("{lock}", "LIMIT 1") + ") due", days, limit
            )
        case RetentionRule.PAYER_ADDRESSES:
            row = await database.row(_COUNT + _ADDRESSES + ") due", days, limit)
        case RetentionRule.PAYER_DETAILS:
            row = await database.row(_COUNT + _DETAILS + ") due", days, limit)
        case RetentionRule.PAYERS:
            row = await database.row(_COUNT + _PAYERS + ") due", days, limit)
    assert row is not None  # noqa: S101 - a count is one row
    return row["due"]


async def _erase_payers(database: Database, days: int, limit: int) -> int:
    """Take the payer out of old payments, as operators do at a payer's wish."""
    async with database.transaction() as tx:
        rows = await tx.fetch(_PAYERS + " FOR UPDATE OF p SKIP LOCKED", days, limit)
        if rows:
            await payer_erasure.erase(tx, [row["id"] for row in rows], {})
    return len(rows)


# Deliveries are locked and looked at again, so that none is lost that was just made due again.
_DELETE_ATTEMPTS: LiteralString = (
    "WITH due AS MATERIALIZED ("
    + _ATTEMPTS.replace("{lock}", "FOR NO KEY UPDATE SKIP LOCKED")
    + """)
    DELETE FROM attempt
    WHERE id = ANY(ARRAY(SELECT id FROM due))
    RETURNING 1 AS gone
    """
)
_DELETE_EVENTS: LiteralString = (
    "WITH due AS MATERIALIZED ("
    + _EVENTS.replace("{lock}", "FOR UPDATE SKIP LOCKED")
    + """), attempts AS (
        DELETE FROM attempt WHERE event_id = ANY(ARRAY(SELECT id FROM due))
    ), deliveries AS (
        DELETE FROM delivery WHERE event_id = ANY(ARRAY(SELECT id FROM due))
    )
    DELETE FROM event
    WHERE id = ANY(ARRAY(SELECT id FROM due))
    RETURNING 1 AS gone
    """
)
_FORGET_ADDRESSES: LiteralString = (
    "WITH due AS MATERIALIZED ("
    + _ADDRESSES
    + """
        FOR NO KEY UPDATE OF r SKIP LOCKED
    )
    UPDATE chain_receipt
    SET payer = NULL
    WHERE id = ANY(ARRAY(SELECT id FROM due))
    RETURNING 1 AS gone
    """
)
_FORGET_DETAILS: LiteralString = (
    "WITH due AS MATERIALIZED ("
    + _DETAILS
    + """
        FOR NO KEY UPDATE OF p SKIP LOCKED
    )
    UPDATE payment
    SET payer_email = NULL, metadata = '{}'
    WHERE id = ANY(ARRAY(SELECT id FROM due))
    RETURNING 1 AS gone
    """
)
