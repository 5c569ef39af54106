"""The clock of a test merchant (table `test_clock`): advancing it moves this merchant's times."""

from dataclasses import dataclass
from typing import LiteralString

from payintent.storage.database import Executor, Row, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedTimes:
    """How many rows of each kind came nearer to their time."""

    payments: int
    sessions: int
    refunds: int
    deliveries: int


async def get(database: Executor, merchant_id: int) -> int:
    """Return by how many seconds a merchant has moved its clock on."""
    row = await database.row(
        "SELECT advanced_s FROM test_clock WHERE merchant_id = $1", merchant_id
    )
    return row["advanced_s"] if row else 0


async def advance(tx: Tx, merchant_id: int, seconds: int) -> tuple[int, MovedTimes]:
    """Advance a merchant's clock and move its times; returns its total advance in seconds too."""
    # The row is locked until the end, so advances of one clock run one after another.
    row = await tx.row(
        """
        INSERT INTO test_clock AS c (merchant_id, advanced_s)
        VALUES ($1, $2)
        ON CONFLICT (merchant_id) DO UPDATE
        SET advanced_s = c.advanced_s + excluded.advanced_s
        RETURNING advanced_s
        """,
        merchant_id,
        seconds,
    )
    assert row is not None  # noqa: S101 - RETURNING gives the written row
    return row["advanced_s"], await _move_times(tx, merchant_id, seconds)


async def _move_times(tx: Tx, merchant_id: int, seconds: int) -> MovedTimes:
    """Move all due times of a test merchant; locks are taken in the order of all locks."""
    payments = await tx.row(_PAYMENTS, merchant_id, seconds)
    sessions = await tx.row(_SESSIONS, merchant_id, seconds)
    refunds = await tx.row(_REFUNDS, merchant_id, seconds)
    deliveries = await tx.row(_DELIVERIES, merchant_id, seconds)
    await tx.row(_TEST_SESSIONS, merchant_id, seconds)
    await tx.row(_TEST_REFUNDS, merchant_id, seconds)
    return MovedTimes(
        payments=_moved(payments),
        sessions=_moved(sessions),
        refunds=_moved(refunds),
        deliveries=_moved(deliveries),
    )


def _moved(row: Row | None) -> int:
    assert row is not None  # noqa: S101 - a count is always there
    return row["moved"]


_PAYMENTS: LiteralString = """
    WITH due AS (
        SELECT id,
            expires_at - $2::int * interval '1 second' AS expires_at
        FROM payment
        WHERE merchant_id = $1 AND status IN ('PENDING', 'PROCESSING')
        ORDER BY id
        FOR NO KEY UPDATE
    ), moved AS (
        UPDATE payment p
        SET expires_at = due.expires_at
        FROM due
        WHERE p.id = due.id
        RETURNING p.id
    )
    SELECT count(*) AS moved FROM moved
"""
_SESSIONS: LiteralString = """
    WITH due AS (
        SELECT s.id,
            s.inquire_at - $2::int * interval '1 second' AS inquire_at,
            s.closing_at - $2::int * interval '1 second' AS closing_at,
            s.silent_since - $2::int * interval '1 second' AS silent_since,
            s.opened_at - $2::int * interval '1 second' AS opened_at
        FROM session s
        JOIN payment p ON p.id = s.payment_id
        WHERE p.merchant_id = $1 AND s.life <> 'ended'
        ORDER BY s.id
        FOR NO KEY UPDATE OF s
    ), moved AS (
        UPDATE session s
        SET inquire_at = due.inquire_at,
            closing_at = due.closing_at,
            silent_since = due.silent_since,
            opened_at = due.opened_at
        FROM due
        WHERE s.id = due.id
        RETURNING s.id
    )
    SELECT count(*) AS moved FROM moved
"""
_REFUNDS: LiteralString = """
    WITH due AS (
        SELECT id,
            next_at - $2::int * interval '1 second' AS next_at,
            sent_at - $2::int * interval '1 second' AS sent_at
        FROM refund
        WHERE merchant_id = $1 AND step IN ('queued', 'sent') AND next_at IS NOT NULL
        ORDER BY id
        FOR NO KEY UPDATE
    ), moved AS (
        UPDATE refund r
        SET next_at = due.next_at,
            sent_at = due.sent_at
        FROM due
        WHERE r.id = due.id
        RETURNING r.id
    )
    SELECT count(*) AS moved FROM moved
"""
_DELIVERIES: LiteralString = """
    WITH due AS (
        SELECT event_id,
            next_at - $2::int * interval '1 second' AS next_at
        FROM delivery
        WHERE merchant_id = $1 AND state = 'pending'
        ORDER BY event_id
        FOR NO KEY UPDATE
    ), moved AS (
        UPDATE delivery d
        SET next_at = due.next_at
        FROM due
        WHERE d.event_id = due.event_id
        RETURNING d.event_id
    )
    SELECT count(*) AS moved FROM moved
"""
# What the test gateway itself waits for; each is counted with its session or refund of ours.
_TEST_SESSIONS: LiteralString = """
    WITH due AS (
        SELECT t.session_id,
            t.expires_at - $2::int * interval '1 second' AS expires_at,
            t.decides_at - $2::int * interval '1 second' AS decides_at
        FROM test_session t
        JOIN session s ON s.id = t.session_id
        JOIN payment p ON p.id = s.payment_id
        WHERE p.merchant_id = $1 AND t.status IN ('open', 'challenge', 'deciding')
        ORDER BY t.session_id
        FOR NO KEY UPDATE OF t
    ), moved AS (
        UPDATE test_session t
        SET expires_at = due.expires_at,
            decides_at = due.decides_at
        FROM due
        WHERE t.session_id = due.session_id
        RETURNING t.session_id
    )
    SELECT count(*) AS moved FROM moved
"""
_TEST_REFUNDS: LiteralString = """
    WITH due AS (
        SELECT t.refund_id,
            t.done_at - $2::int * interval '1 second' AS done_at
        FROM test_refund t
        JOIN refund r ON r.id = t.refund_id
        WHERE r.merchant_id = $1 AND t.state = 'pending'
        ORDER BY t.refund_id
        FOR NO KEY UPDATE OF t
    ), moved AS (
        UPDATE test_refund t
        SET done_at = due.done_at
        FROM due
        WHERE t.refund_id = due.refund_id
        RETURNING t.refund_id
    )
    SELECT count(*) AS moved FROM moved
"""
