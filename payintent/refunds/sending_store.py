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
    is_resting: bool  # sent or possibly sent, not ended, and no longer polled
    is_logged: bool  # a final log has its id, and is ours or not classified yet
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
    """Poll a locked refund again, for another week and three more reverts.

    An automatic refund counts as approved from now on, so the limits of automatic refunds no
    longer apply.
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
    """Mark all queued refunds as sent now, so that each starts with an inquiry; return how many.

    Refunds that are no longer polled stay so.
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
