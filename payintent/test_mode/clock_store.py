"""Store test merchants' clocks. Advancing a clock brings deadlines and due times forward."""

from dataclasses import dataclass
from typing import LiteralString

from payintent.db.database import Executor, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvancedRows:
    """The number of rows of each kind whose times were brought forward."""

    payments: int
    sessions: int
    refunds: int
    deliveries: int


async def get(database: Executor, merchant_id: int) -> int:
    """Return the total number of seconds by which a merchant's clock has been advanced."""
    advanced_s = await database.value(
        "SELECT advanced_s FROM test_clock WHERE merchant_id = $1", merchant_id
    )
    return advanced_s or 0


async def advance(tx: Tx, merchant_id: int, seconds: int) -> tuple[int, AdvancedRows]:
    """Advance a merchant's clock; return its total offset in seconds and the changed rows."""
    # The row stays locked until the commit, so that advances of the same clock do not overlap.
    advanced_s = await tx.value(
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
    # Lock the tables in the same order as all other transactions.
    advanced_rows = AdvancedRows(
        payments=await tx.value(_ADVANCE_PAYMENTS, merchant_id, seconds),
        sessions=await tx.value(_ADVANCE_SESSIONS, merchant_id, seconds),
        refunds=await tx.value(_ADVANCE_REFUNDS, merchant_id, seconds),
        deliveries=await tx.value(_ADVANCE_DELIVERIES, merchant_id, seconds),
    )
    await tx.row(_ADVANCE_LINKS, merchant_id, seconds)
    await tx.row(_ADVANCE_TEST_SESSIONS, merchant_id, seconds)
    await tx.row(_ADVANCE_TEST_REFUNDS, merchant_id, seconds)
    return advanced_s, advanced_rows


def _build_advance_statement(
    table: LiteralString,
    key: LiteralString,
    columns: tuple[LiteralString, ...],
    open_rows_clause: LiteralString,
) -> LiteralString:
    """Return a statement that brings the times of open rows forward and counts the rows.

    `$1` is the merchant, `$2` the number of seconds. Rows are locked in key order before their new
    times are computed.
    """
    earlier_times = ", ".join(
        [f"{table}.{column} - $2::int * interval '1 second' AS {column}" for column in columns]
    )
    changes = ", ".join([f"{column} = open_rows.{column}" for column in columns])
    return f"""
        WITH open_rows AS (
            SELECT {table}.{key}, {earlier_times}
            FROM {table} {open_rows_clause}
            ORDER BY {table}.{key}
            FOR NO KEY UPDATE OF {table}
        ), moved AS (
            UPDATE {table} SET {changes}
            FROM open_rows
            WHERE {table}.{key} = open_rows.{key}
            RETURNING {table}.{key}
        )
        SELECT count(*) AS moved FROM moved
    """


_ADVANCE_PAYMENTS = _build_advance_statement(
    "payment",
    "id",
    ("expires_at",),
    "WHERE merchant_id = $1 AND status IN ('PENDING', 'PROCESSING')",
)
_ADVANCE_SESSIONS = _build_advance_statement(
    "session",
    "id",
    ("inquire_at", "closing_at", "silent_since", "opened_at"),
    "JOIN payment p ON p.id = payment_id WHERE p.merchant_id = $1 AND life <> 'ended'",
)
_ADVANCE_REFUNDS = _build_advance_statement(
    "refund",
    "id",
    ("next_at", "sent_at"),
    "WHERE merchant_id = $1 AND step IN ('queued', 'sent') AND next_at IS NOT NULL",
)
_ADVANCE_DELIVERIES = _build_advance_statement(
    "delivery", "event_id", ("next_at",), "WHERE merchant_id = $1 AND state = 'pending'"
)
_ADVANCE_LINKS = _build_advance_statement(
    "payment_link",
    "id",
    ("expires_at",),
    "WHERE merchant_id = $1 AND expires_at IS NOT NULL AND deactivated_at IS NULL",
)
# The test gateway's rows are already counted as sessions and refunds.
_ADVANCE_TEST_SESSIONS = _build_advance_statement(
    "test_session",
    "session_id",
    ("expires_at", "decides_at"),
    """
    JOIN session s ON s.id = session_id JOIN payment p ON p.id = s.payment_id
    WHERE p.merchant_id = $1 AND test_session.status IN ('open', 'challenge', 'deciding')
    """,
)
_ADVANCE_TEST_REFUNDS = _build_advance_statement(
    "test_refund",
    "refund_id",
    ("done_at",),
    "JOIN refund r ON r.id = refund_id WHERE r.merchant_id = $1 AND test_refund.state = 'pending'",
)
