"""Store verified gateway callbacks."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from payintent.db.database import Executor, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredCallback:
    """A callback that arrived before its session was stored and can now be applied."""

    account_id: int
    callback_id: str
    session_id: UUID
    payment_id: UUID
    report: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCallback:
    account_id: int
    callback_id: str
    session_id: UUID | None  # as reported; the session may not exist
    refund_id: UUID | None
    report: str | None  # JSON
    body: bytes


async def add(tx: Tx, new_callbacks: Sequence[NewCallback]) -> dict[tuple[int, str], UUID | None]:
    """Store callbacks with distinct keys; return the payment ids of the new callbacks by key.

    The payment id is None if the callback has no session, or if the session has not been stored
    for the account yet. In the latter case, the callback is applied when the session is stored.
    """
    # Sorted, so that concurrent batches cannot deadlock.
    sorted_callbacks = sorted(
        new_callbacks, key=lambda callback: (callback.account_id, callback.callback_id)
    )
    rows = await tx.fetch(
        """
        WITH new AS MATERIALIZED (
            SELECT n.*, s.payment_id
            FROM unnest($1::bigint[], $2::text[], $3::uuid[], $4::uuid[], $5::json[], $6::bytea[])
                WITH ORDINALITY
                AS n (account_id, callback_id, session_id, refund_id, report, body, position)
            LEFT JOIN session s ON s.id = n.session_id AND s.account_id = n.account_id
        ), stored AS (
            INSERT INTO callback AS c
                (account_id, callback_id, session_id, refund_id, report, body, applied_at)
            SELECT account_id, callback_id, session_id, refund_id, report, body,
                CASE WHEN session_id IS NULL OR payment_id IS NOT NULL THEN clock() END
            FROM new
            ORDER BY position
            ON CONFLICT (account_id, callback_id) DO NOTHING
            RETURNING c.account_id, c.callback_id
        )
        SELECT account_id, callback_id, new.payment_id
        FROM stored
        JOIN new USING (account_id, callback_id)
        """,
        [callback.account_id for callback in sorted_callbacks],
        [callback.callback_id for callback in sorted_callbacks],
        [callback.session_id for callback in sorted_callbacks],
        [callback.refund_id for callback in sorted_callbacks],
        [callback.report for callback in sorted_callbacks],
        [callback.body for callback in sorted_callbacks],
    )
    return {(row["account_id"], row["callback_id"]): row["payment_id"] for row in rows}


async def mark_applied(tx: Tx, account_id: int, callback_id: str) -> bool:
    """Mark a callback as applied; return False if it is already marked."""
    row = await tx.row(
        """
        UPDATE callback
        SET applied_at = clock()
        WHERE account_id = $1 AND callback_id = $2 AND applied_at IS NULL
        RETURNING account_id
        """,
        account_id,
        callback_id,
    )
    return row is not None


async def list_deferred(database: Executor, limit: int) -> list[DeferredCallback]:
    """List unapplied callbacks whose session has been stored since they arrived."""
    rows = await database.fetch(
        """
        SELECT c.account_id, c.callback_id, c.session_id, s.payment_id, c.report
        FROM callback c
        JOIN session s ON s.id = c.session_id AND s.account_id = c.account_id
        WHERE c.applied_at IS NULL AND c.report IS NOT NULL
        ORDER BY c.received_at
        LIMIT $1
        """,
        limit,
    )
    return [DeferredCallback(**row) for row in rows]


async def prune_bodies(database: Executor, days: int, limit: int) -> int:
    """Delete the bodies of callbacks applied at least `days` days ago; return their count."""
    rows = await database.fetch(
        """
        UPDATE callback c
        SET body = NULL
        FROM (
            SELECT account_id, callback_id
            FROM callback
            WHERE applied_at <= clock() - $1 * interval '1 day' AND body IS NOT NULL
            ORDER BY applied_at
            LIMIT $2
            FOR UPDATE SKIP LOCKED
        ) AS old
        WHERE c.account_id = old.account_id AND c.callback_id = old.callback_id
        RETURNING 1 AS pruned
        """,
        days,
        limit,
    )
    return len(rows)


async def delete_unmatched(database: Executor, hours: int, limit: int) -> int:
    """Delete callbacks whose session was never stored, unless they report a capture."""
    rows = await database.fetch(
        """
        DELETE FROM callback c
        USING (
            SELECT account_id, callback_id
            FROM callback
            WHERE applied_at IS NULL AND received_at <= clock() - $1 * interval '1 hour'
                AND report ->> 'state' IS DISTINCT FROM 'captured'
            ORDER BY received_at
            LIMIT $2
            FOR UPDATE SKIP LOCKED
        ) AS old
        WHERE c.account_id = old.account_id AND c.callback_id = old.callback_id
        RETURNING 1 AS pruned
        """,
        hours,
        limit,
    )
    return len(rows)
