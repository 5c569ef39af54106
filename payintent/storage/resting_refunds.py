"""Refunds that nobody looks after any more: what is known of them, and how they are taken up."""

from dataclasses import dataclass
from uuid import UUID

from payintent.storage.database import Executor, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class RestingRefund:
    """What decides whether a refund may be taken up again."""

    status: str
    step: str
    provider: str
    resting: bool  # was or may have been sent, has not ended, and is not looked at by itself
    logged: bool  # a final log of the chain names it, by a sender of ours or not judged yet
    disputed: bool  # a dispute holds some of what it gives back


async def get(database: Executor, refund_id: UUID) -> RestingRefund:
    """Read what is known of a refund."""
    row = await database.row(
        """
        SELECT f.status, f.step, a.provider,
            f.step IN ('queued', 'sent') AND f.next_at IS NULL AS resting,
            EXISTS (SELECT FROM chain_refund l
                WHERE l.refund_ref = f.id AND l.disposition IS DISTINCT FROM 'foreign') AS logged,
            c.refunded_minor + c.reserved_minor + c.disputed_minor > c.amount_minor AS disputed
        FROM refund f
        JOIN capture c ON c.id = f.capture_id
        JOIN provider_account a ON a.id = c.account_id
        WHERE f.id = $1
        """,
        refund_id,
    )
    assert row is not None  # noqa: S101 - refunds are never deleted
    return RestingRefund(**row)


async def resume(tx: Tx, refund_id: UUID) -> None:
    """Let a locked refund be looked after from now on, for another week and three more reverts."""
    await tx.fetch(
        """
        WITH anew AS (
            UPDATE chain_refund_try
            SET reverts = 0
            WHERE refund_id = $1
        )
        UPDATE refund
        SET next_at = clock(), updated_at = clock(), inquiries = 0
        WHERE id = $1 AND step IN ('queued', 'sent') AND next_at IS NULL
        """,
        refund_id,
    )
