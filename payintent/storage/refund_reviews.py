"""Refunds as an operator works on them: listed, shown, approved."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from payintent.storage.database import Executor, Row, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundReview:
    """A refund with its capture, and where that came from."""

    id: UUID
    status: str
    step: str
    failure_reason: str | None
    merchant_id: int | None
    payment_id: UUID | None
    capture_id: UUID
    case_id: UUID | None
    account_id: int
    provider: str
    capture_reference: str
    capture_currency: str
    amount_text: str | None  # of the payment's amount
    currency: str
    amount_minor: str  # what the gateway refunds, in the capture's smallest units
    chain: str | None
    payer: bytes | None  # the sender's address on its chain
    destination: str | None
    reason: str | None
    requested_by: str
    approved_by: str | None
    note: str
    reference: str | None  # the gateway's own id of the refund
    inquiries: int
    sent_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundFilter:
    """Which refunds to list; None means any."""

    merchant_id: int | None = None
    payment_id: UUID | None = None
    status: str | None = None
    step: str | None = None


_ASKED = """
    SELECT f.id, f.status, f.step, f.failure_reason, f.merchant_id, f.payment_id, f.capture_id,
        f.case_id, c.account_id, a.provider, c.reference AS capture_reference,
        c.currency AS capture_currency, f.amount_text, f.currency,
        f.amount_minor::text AS amount_minor, r.chain, r.payer, f.destination, f.reason,
        f.requested_by, f.approved_by, f.note, f.reference, f.inquiries, f.sent_at, f.created_at,
        f.updated_at
    FROM refund f
    JOIN capture c ON c.id = f.capture_id
    JOIN provider_account a ON a.id = c.account_id
    LEFT JOIN chain_receipt r ON r.id = c.receipt_id
"""


async def list_refunds(database: Executor, wanted: RefundFilter, limit: int) -> list[RefundReview]:
    """List refunds, newest first."""
    rows = await database.fetch(
        _ASKED
        + """
        WHERE (f.merchant_id = $1 OR $1::bigint IS NULL)
            AND (f.payment_id = $2 OR $2::uuid IS NULL)
            AND (f.status = $3 OR $3::text IS NULL) AND (f.step = $4 OR $4::text IS NULL)
        ORDER BY f.id DESC
        LIMIT $5
        """,
        wanted.merchant_id,
        wanted.payment_id,
        wanted.status,
        wanted.step,
        limit,
    )
    return [_asked(row) for row in rows]


async def get(database: Executor, refund_id: UUID) -> RefundReview | None:
    """Read a refund with its capture; None where there is none of this id."""
    row = await database.row(_ASKED + "WHERE f.id = $1", refund_id)
    return _asked(row) if row else None


async def approve(tx: Tx, refund_id: UUID, approved_by: str, note: str, at: datetime) -> None:
    """Approve a locked refund that waits for approval, so that it is sent."""
    await tx.fetch(
        """
        UPDATE refund
        SET step = 'queued', next_at = $4, approved_by = $2, note = $3, updated_at = $4
        WHERE id = $1 AND step = 'approval'
        """,
        refund_id,
        approved_by,
        note,
        at,
    )


async def add_note(tx: Tx, refund_id: UUID, note: str) -> None:
    """Store why a refund was not approved."""
    await tx.fetch("UPDATE refund SET note = $2 WHERE id = $1", refund_id, note)


def _asked(row: Row) -> RefundReview:
    columns: dict[str, Any] = dict(row)
    return RefundReview(**columns)


async def sum_unapproved(tx: Tx, merchant_id: int | None, chain: str) -> Decimal:
    """Sum up what a merchant refunded on a chain within a day without a second operator, in tokens.

    Until the end of the transaction no other can add to it. A token that is not at its address
    any more adds nothing: its refunds always need a second operator.
    """
    await tx.fetch(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
        f"refund approval {merchant_id} {chain}",
    )
    row = await tx.row(
        """
        SELECT coalesce(sum(f.amount_minor / 10::numeric ^ t.decimals), 0) AS tokens
        FROM refund f
        JOIN capture c ON c.id = f.capture_id
        JOIN chain_receipt r ON r.id = c.receipt_id
        JOIN chain_token t ON t.chain = r.chain AND t.address = r.token
        WHERE (f.merchant_id = $1 OR f.merchant_id IS NULL AND $1::bigint IS NULL)
            AND r.chain = $2 AND f.destination IS NOT NULL AND f.approved_by IS NULL
            AND f.created_at > clock() - interval '1 day'
            AND f.step <> 'approval' AND f.status <> 'FAILED'
        """,
        merchant_id,
        chain,
    )
    assert row is not None  # noqa: S101 - a sum is always one row
    return row["tokens"]
