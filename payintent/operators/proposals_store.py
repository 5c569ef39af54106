"""Operations that a second operator must approve, and the operators' decisions."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from payintent.db.database import Executor, Tx
from payintent.db.lists import KeysetList


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A stored proposal. `status` is LAPSED if it expired without a decision."""

    id: UUID
    action: str
    merchant_id: int | None
    sealed: bytes | None = field(repr=False)
    changes: list[str]
    proposed_by: str
    why: str
    proposed_at: datetime
    expires_at: datetime
    status: str
    decided_by: str | None
    decided_at: datetime | None
    note: str


_STATUS = "CASE WHEN status = 'WAITING' AND expires_at <= clock() THEN 'LAPSED' ELSE status END"
_COLUMNS = f"""
    id, action, merchant_id, sealed, changes, proposed_by, why, proposed_at, expires_at,
    {_STATUS} AS status, decided_by, decided_at, note
"""
_SELECT_PROPOSAL = f"SELECT {_COLUMNS} FROM proposal "


async def add(
    tx: Tx,
    proposal_id: UUID,
    *,
    action: str,
    merchant_id: int | None,
    sealed: bytes,
    changes: list[str],
    proposed_by: str,
    reason: str,
) -> Proposal:
    row = await tx.row(
        f"""
        INSERT INTO proposal (id, action, merchant_id, sealed, changes, proposed_by, why)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        RETURNING {_COLUMNS}
        """,
        proposal_id,
        action,
        merchant_id,
        sealed,
        changes,
        proposed_by,
        reason,
    )
    assert row is not None  # noqa: S101 - RETURNING returns the inserted row
    return Proposal(**row)


async def get(database: Executor, proposal_id: UUID) -> Proposal | None:
    row = await database.row(_SELECT_PROPOSAL + "WHERE id = $1", proposal_id)
    return Proposal(**row) if row else None


async def lock(tx: Tx, proposal_id: UUID) -> Proposal | None:
    row = await tx.row(_SELECT_PROPOSAL + "WHERE id = $1 FOR UPDATE", proposal_id)
    return Proposal(**row) if row else None


#: Lists of proposals, newest first (False) and oldest first (True).
_PROPOSALS = {
    order: KeysetList(
        _SELECT_PROPOSAL,
        "id",
        oldest_first=order,
        status=_STATUS + " = {}",
        merchant_id="merchant_id = {}",
    )
    for order in (False, True)
}


async def list_proposals(
    database: Executor,
    last: UUID | None,
    limit: int,
    *,
    status: str | None,
    merchant_id: int | None = None,
    oldest_first: bool = False,
) -> list[Proposal]:
    """List proposals after the last id on the previous page. A None filter matches them all."""
    rows = await _PROPOSALS[oldest_first].page(
        database, last, limit, status=status, merchant_id=merchant_id
    )
    return [Proposal(**row) for row in rows]


async def record_decision(
    tx: Tx, proposal_id: UUID, status: str, decided_by: str, note: str
) -> None:
    """Record a decision and delete the proposal's arguments. The proposal must be locked."""
    await tx.fetch(
        """
        UPDATE proposal
        SET status = $2, decided_by = $3, decided_at = clock(), note = $4, sealed = NULL
        WHERE id = $1 AND status = 'WAITING'
        """,
        proposal_id,
        status,
        decided_by,
        note,
    )


async def delete_lapsed_arguments(database: Executor, limit: int) -> int:
    """Delete the arguments of expired proposals; return how many were deleted."""
    rows = await database.fetch(
        """
        UPDATE proposal
        SET sealed = NULL
        WHERE id IN (
            SELECT id
            FROM proposal
            WHERE sealed IS NOT NULL AND expires_at <= clock()
            LIMIT $1
            FOR UPDATE SKIP LOCKED
        )
        RETURNING id
        """,
        limit,
    )
    return len(rows)


async def lock_sealed_after(tx: Tx, after: UUID, limit: int) -> list[Proposal]:
    """Lock and return a batch of proposals with encrypted arguments, in id order."""
    rows = await tx.fetch(
        _SELECT_PROPOSAL
        + "WHERE id > $1 AND sealed IS NOT NULL ORDER BY id LIMIT $2 FOR NO KEY UPDATE",
        after,
        limit,
    )
    return [Proposal(**row) for row in rows]


async def replace_sealed(tx: Tx, proposal_id: UUID, sealed: bytes) -> None:
    await tx.fetch("UPDATE proposal SET sealed = $2 WHERE id = $1", proposal_id, sealed)
