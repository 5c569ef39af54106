"""The clock of a test merchant (table `test_clock`): its times are moved, and no other's.

Each cell notes by how much its own rows were moved. Where the clock stands is what cell 0 notes,
wherever the merchant is: another cell moves its rows by what it lacks of that.
"""

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

    def __add__(self, other: "MovedTimes") -> "MovedTimes":
        """Add what was moved in another cell."""
        return MovedTimes(
            payments=self.payments + other.payments,
            sessions=self.sessions + other.sessions,
            refunds=self.refunds + other.refunds,
            deliveries=self.deliveries + other.deliveries,
        )


async def get(database: Executor, merchant_id: int) -> int:
    """Return by how many seconds a merchant has moved its clock on."""
    row = await database.row(
        "SELECT advanced_s FROM test_clock WHERE merchant_id = $1", merchant_id
    )
    return row["advanced_s"] if row else 0


async def advance(tx: Tx, merchant_id: int, seconds: int) -> int:
    """Note that the clock is moved on, and lock it; returns by how much it is in all."""
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
    return row["advanced_s"]


async def lock(tx: Tx, merchant_id: int) -> int:
    """Return by how much the clock is moved on, and let nobody move it until this ends."""
    row = await tx.row(
        "SELECT advanced_s FROM test_clock WHERE merchant_id = $1 FOR UPDATE", merchant_id
    )
    return row["advanced_s"] if row else 0


async def catch_up(tx: Tx, merchant_id: int, advanced_s: int) -> MovedTimes:
    """Move a cell's rows by what they lack of where the clock stands, and note that."""
    await tx.fetch(
        """
        INSERT INTO test_clock (merchant_id, advanced_s)
        VALUES ($1, 0)
        ON CONFLICT (merchant_id) DO NOTHING
        """,
        merchant_id,
    )
    lacks = advanced_s - await lock(tx, merchant_id)
    if lacks <= 0:
        return MovedTimes(payments=0, sessions=0, refunds=0, deliveries=0)
    await advance(tx, merchant_id, lacks)
    return await move_times(tx, merchant_id, lacks)


async def move_times(tx: Tx, merchant_id: int, seconds: int) -> MovedTimes:
    """Bring forward whatever a test merchant waits for; locks in the order of all locks."""
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
