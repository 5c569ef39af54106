"""The inbox: every verified callback of a gateway, stored once."""

from dataclasses import dataclass
from uuid import UUID

from payintent.storage.database import Executor, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCallback:
    """A callback that came before its session was stored, and can be applied now."""

    account_id: int
    callback_id: str
    session_id: UUID
    report: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCallback:
    """A verified callback; `report` is JSON, `applied` tells that this transaction applies it."""

    account_id: int
    callback_id: str
    session_id: UUID | None
    refund_id: UUID | None
    report: str | None
    body: bytes
    applied: bool


async def add(tx: Tx, received: NewCallback) -> bool:
    """Store a callback; False where it is stored already."""
    row = await tx.row(
        """
        INSERT INTO callback
            (account_id, callback_id, session_id, report, body, applied_at, refund_id)
        VALUES ($1, $2, $3, $4, $5, CASE WHEN $6 THEN clock() END, $7)
        ON CONFLICT (account_id, callback_id) DO NOTHING
        RETURNING account_id
        """,
        received.account_id,
        received.callback_id,
        received.session_id,
        received.report,
        received.body,
        received.applied,
        received.refund_id,
    )
    return row is not None


async def mark_applied(tx: Tx, account_id: int, callback_id: str) -> bool:
    """Mark a callback as applied; False where another process did so first."""
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


async def list_waiting(database: Executor, limit: int) -> list[WaitingCallback]:
    """List callbacks whose session has been stored since they came."""
    rows = await database.fetch(
        """
        SELECT c.account_id, c.callback_id, c.session_id, c.report
        FROM callback c
        JOIN session s ON s.id = c.session_id AND s.account_id = c.account_id
        WHERE c.applied_at IS NULL AND c.report IS NOT NULL
        ORDER BY c.received_at
        LIMIT $1
        """,
        limit,
    )
    return [WaitingCallback(**row) for row in rows]


async def prune_bodies(database: Executor, days: int, limit: int) -> int:
    """Delete the bodies of callbacks that were applied so long ago; returns how many."""
    rows = await database.fetch(
        """
        UPDATE callback
        SET body = NULL
        WHERE (account_id, callback_id) IN (
            SELECT account_id, callback_id
            FROM callback
            WHERE applied_at <= clock() - $1 * interval '1 day' AND body IS NOT NULL
            ORDER BY applied_at
            LIMIT $2
            FOR UPDATE SKIP LOCKED
        )
        RETURNING 1 AS gone
        """,
        days,
        limit,
    )
    return len(rows)


async def delete_unmatched(database: Executor, hours: int, limit: int) -> int:
    """Delete callbacks of sessions that never appeared, except those that report money."""
    rows = await database.fetch(
        """
        DELETE FROM callback
        WHERE (account_id, callback_id) IN (
            SELECT account_id, callback_id
            FROM callback
            WHERE applied_at IS NULL AND received_at <= clock() - $1 * interval '1 hour'
                AND report ->> 'state' IS DISTINCT FROM 'captured'
            ORDER BY received_at
            LIMIT $2
            FOR UPDATE SKIP LOCKED
        )
        RETURNING 1 AS gone
        """,
        hours,
        limit,
    )
    return len(rows)
