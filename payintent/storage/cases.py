"""Cases as an operator works on them: listed, looked at, closed with a reason."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.storage.database import Executor, Tx

STATUSES = ("OPEN", "REFUNDED", "ACCEPTED", "DISMISSED")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCase:
    """A case with the money it is about, where a receipt or a capture tells."""

    id: UUID
    kind: str
    status: str
    merchant_id: int | None
    payment_id: UUID | None
    session_id: UUID | None
    opened_at: datetime
    closed_at: datetime | None
    closed_by: str | None
    note: str
    account_id: int | None
    reference: str | None  # of the capture, at its provider
    currency: str | None
    amount_minor: str | None  # smallest units
    chain: str | None
    tx_hash: bytes | None
    payer: bytes | None
    token: bytes | None


_CASE = """
    m.id, m.kind, m.status, m.merchant_id, m.payment_id, m.session_id, m.opened_at, m.closed_at,
    m.closed_by, m.note, coalesce(c.account_id, r.account_id) AS account_id, c.reference,
    c.currency, coalesce(c.amount_minor, r.amount)::text AS amount_minor, r.chain, r.tx_hash,
    r.payer, r.token
"""
_FROM = """
    FROM money_case m
    LEFT JOIN capture c ON c.id = m.capture_id
    LEFT JOIN chain_receipt r ON r.id = m.receipt_id
"""


async def listed(
    database: Executor, merchant_id: int | None, status: str | None, kind: str | None, limit: int
) -> list[OpenCase]:
    """List cases, newest first."""
    rows = await database.fetch(
        "SELECT"
        + _CASE
        + _FROM
        + """
        WHERE (m.merchant_id = $1 OR $1::bigint IS NULL) AND (m.status = $2 OR $2::text IS NULL)
            AND (m.kind = $3 OR $3::text IS NULL)
        ORDER BY m.id DESC
        LIMIT $4
        """,
        merchant_id,
        status,
        kind,
        limit,
    )
    return [OpenCase(**row) for row in rows]


async def by_id(database: Executor, case_id: UUID) -> OpenCase | None:
    """Read one case."""
    row = await database.row("SELECT" + _CASE + _FROM + "WHERE m.id = $1", case_id)
    return OpenCase(**row) if row else None


async def close(tx: Tx, case_id: UUID, status: str, closed_by: str, note: str) -> bool:
    """Close a case; False where somebody has done so before."""
    row = await tx.row(
        """
        UPDATE money_case
        SET status = $2, closed_at = clock(), closed_by = $3, note = $4
        WHERE id = $1 AND status = 'OPEN'
        RETURNING id
        """,
        case_id,
        status,
        closed_by,
        note,
    )
    return row is not None
