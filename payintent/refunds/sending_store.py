"""Resumes refunds that were handed over to an operator or restored from a backup."""

from dataclasses import dataclass
from uuid import UUID

from payintent.db.database import Executor, Tx
from payintent.refunds.model import AUTO_REFUND
from payintent.refunds.store import DISPUTED


@dataclass(frozen=True, slots=True, kw_only=True)
class RestingRefund:
    status: str
    step: str
    provider: str
    is_resting: bool  # possibly sent, not ended, and no longer polled
    is_logged: bool  # a final log with its id is ours or not yet classified
    is_disputed: bool  # a dispute holds part of its amount


async def get(database: Executor, refund_id: UUID) -> RestingRefund:
    row = await database.row(
        """
        SELECT f.status, f.step, a.provider,
            f.step IN ('queued', 'sent') AND f.next_at IS NULL AS is_resting,
            EXISTS (SELECT FROM chain_refund l
                WHERE l.refund_ref = f.id AND l.disposition IS DISTINCT FROM 'foreign'
            ) AS is_logged,
            """
        + DISPUTED
        + """ AS is_disputed
        FROM refund f
        JOIN capture c ON c.id = f.capture_id
        JOIN provider_account a ON a.id = c.account_id
        WHERE f.id = $1
        """,
        refund_id,
    )
    assert row is not None  # noqa: S101 - refunds are never deleted
    return RestingRefund(**row)


async def resume(tx: Tx, refund_id: UUID, approved_by: str) -> None:
    """Resume polling a refund for another week and three more reverts. It must be locked.

    An automatic refund then counts as approved, so the limits on automatic refunds no longer apply.
    """
    await tx.fetch(
        """
        WITH anew AS (
            UPDATE chain_refund_try
            SET reverts = 0
            WHERE refund_id = $1
        )
        UPDATE refund
        SET next_at = clock(), updated_at = clock(), inquiries = 0,
            approved_by = CASE WHEN requested_by = $3 THEN $2 ELSE approved_by END
        WHERE id = $1 AND step IN ('queued', 'sent') AND next_at IS NULL
        """,
        refund_id,
        approved_by,
        AUTO_REFUND,
    )


async def mark_queued_as_sent(tx: Tx) -> int:
    """Mark all queued refunds as sent, so that each starts with an inquiry; return their number.

    Refunds that are no longer polled are not polled again.
    """
    return await tx.value(
        """
        WITH marked AS (
            UPDATE refund
            SET step = 'sent', sent_at = clock(), inquiries = 0,
                next_at = CASE WHEN next_at IS NOT NULL THEN t.now END
            FROM (SELECT clock() AS now) t
            WHERE step = 'queued'
            RETURNING id
        )
        SELECT count(*) AS marked
        FROM marked
        """
    )
