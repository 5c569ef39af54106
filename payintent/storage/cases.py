"""Cases as an operator works on them: listed, looked at, refunded, closed with a reason."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from payintent.domain.case import CaseKind
from payintent.storage.captures import MoneyOrigin
from payintent.storage.database import Executor, Row, Tx

STATUSES = ("OPEN", "REFUNDED", "ACCEPTED", "DISMISSED")


@dataclass(frozen=True, slots=True)
class CaseRefund:
    """The last attempt to give a case's money back."""

    id: UUID
    status: str
    step: str
    failure_reason: str | None


@dataclass(frozen=True, slots=True)
class CaseDispute:
    """The dispute that a case is about; the case has its amount and currency."""

    reference: str
    state: str
    funds: str
    reason: str
    respond_by: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRecord:
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
    capture_id: UUID | None
    credited: bool  # the capture pays its payment, whose refunds give it back
    refund_id: UUID | None  # that it is about
    subject: str | None  # what a provider's own list says, or does not say
    refund: CaseRefund | None
    dispute: CaseDispute | None


_CASE = """
    m.id, m.kind, m.status, m.merchant_id, m.payment_id, m.session_id, m.opened_at, m.closed_at,
    m.closed_by, m.note, coalesce(c.account_id, r.account_id) AS account_id, c.reference,
    coalesce(d.currency, c.currency) AS currency,
    coalesce(d.amount_minor, c.amount_minor, r.amount)::text AS amount_minor, r.chain, r.tx_hash,
    r.payer, r.token, m.capture_id, coalesce(c.credited, false) AS credited, m.refund_id, m.subject,
    f.id AS f_id, f.status AS f_status, f.step AS f_step, f.failure_reason AS f_failure_reason,
    d.reference AS d_reference, d.state AS d_state, d.funds AS d_funds, d.reason AS d_reason,
    d.respond_by AS d_respond_by
"""
_FROM = """
    FROM money_case m
    LEFT JOIN capture c ON c.id = m.capture_id
    LEFT JOIN chain_receipt r ON r.id = m.receipt_id
    LEFT JOIN dispute d ON d.case_id = m.id
    LEFT JOIN LATERAL (
        SELECT id, status, step, failure_reason
        FROM refund
        WHERE case_id = m.id
        ORDER BY id DESC
        LIMIT 1
    ) f ON true
"""


async def list_cases(
    database: Executor, merchant_id: int | None, status: str | None, kind: str | None, limit: int
) -> list[CaseRecord]:
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
    return [_case(row) for row in rows]


async def get(database: Executor, case_id: UUID) -> CaseRecord | None:
    """Read one case."""
    row = await database.row("SELECT" + _CASE + _FROM + "WHERE m.id = $1", case_id)
    return _case(row) if row else None


async def lock(tx: Tx, case_id: UUID) -> None:
    """Lock a case, whose payment, capture and refund are locked before where they must be."""
    await tx.row("SELECT id FROM money_case WHERE id = $1 FOR NO KEY UPDATE", case_id)


async def add_note(tx: Tx, case_id: UUID, note: str) -> None:
    """Keep a word with an open case, below those that it has."""
    await tx.fetch(
        """
        UPDATE money_case
        SET note = concat_ws('; ', nullif(note, ''), $2::text)
        WHERE id = $1 AND status = 'OPEN'
        """,
        case_id,
        note,
    )


async def close(tx: Tx, case_id: UUID, status: str, closed_by: str, note: str) -> bool:
    """Close a case, its last word below those that it has; False where that was done before."""
    row = await tx.row(
        """
        UPDATE money_case
        SET status = $2, closed_at = clock(), closed_by = $3,
            note = concat_ws('; ', nullif(note, ''), $4::text)
        WHERE id = $1 AND status = 'OPEN'
        RETURNING id
        """,
        case_id,
        status,
        closed_by,
        note,
    )
    return row is not None


def _case(row: Row) -> CaseRecord:
    columns: dict[str, Any] = {
        name: value for name, value in dict(row).items() if not name.startswith(("f_", "d_"))
    }
    refund = CaseRefund(row["f_id"], row["f_status"], row["f_step"], row["f_failure_reason"])
    dispute = CaseDispute(
        row["d_reference"], row["d_state"], row["d_funds"], row["d_reason"], row["d_respond_by"]
    )
    return CaseRecord(
        **columns,
        refund=refund if row["f_id"] else None,
        dispute=dispute if row["d_reference"] else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentCase:
    """A case as it is kept."""

    id: UUID
    kind: CaseKind
    merchant_id: int
    payment_id: UUID
    session_id: UUID | None
    capture_id: UUID | None
    status: str
    opened_at: datetime


async def open_case(
    tx: Tx,
    case_id: UUID,
    kind: CaseKind,
    origin: MoneyOrigin,
    capture_id: UUID | None,
    refund_id: UUID | None = None,
    *,
    subject: str | None = None,
) -> bool:
    """Open a case; False where there is one of its kind for the same."""
    row = await tx.row(
        """
        INSERT INTO money_case
            (id, kind, merchant_id, payment_id, session_id, capture_id, opened_at, refund_id,
             subject)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        ON CONFLICT ON CONSTRAINT money_case_once DO NOTHING
        RETURNING id
        """,
        case_id,
        kind,
        origin.merchant_id,
        origin.payment_id,
        origin.session_id,
        capture_id,
        origin.at,
        refund_id,
        subject,
    )
    return row is not None


async def list_for_payment(database: Executor, payment_id: UUID) -> list[PaymentCase]:
    """List the cases of a payment, oldest first."""
    rows = await database.fetch(
        """
        SELECT id, kind, merchant_id, payment_id, session_id, capture_id, status, opened_at
        FROM money_case
        WHERE payment_id = $1
        ORDER BY id
        LIMIT 1000
        """,
        payment_id,
    )
    return [_payment_case(row) for row in rows]


def _payment_case(row: Row) -> PaymentCase:
    values = dict(row)
    values["kind"] = CaseKind(row["kind"])
    return PaymentCase(**values)
