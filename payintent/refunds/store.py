"""Store refunds, and the amounts that they reserve on captures and payments."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from payintent.accounting import ledger_store
from payintent.accounting.model import Fact, make_refund_entry
from payintent.db.database import Executor, Row, Tx
from payintent.db.lists import build
from payintent.refunds.model import (
    AUTO_REFUND,
    Refund,
    RefundFailureReason,
    RefundStatus,
    RefundStep,
)

COLUMNS = """
    r.id, r.merchant_id, r.payment_id, r.capture_id, r.case_id, r.amount, r.amount_text,
    r.currency, r.amount_minor, r.reason, r.destination, r.address_entries, r.status,
    r.failure_reason, r.step, r.reference, r.requested_by, r.note, r.inquiries, r.sent_at,
    r.created_at, r.updated_at
"""
#: True if a dispute holds money from capture `c` that a refund has reserved.
DISPUTED = """
    (c.disputed_minor > 0
        AND c.refunded_minor + c.reserved_minor + c.disputed_minor > c.amount_minor)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRefund:
    id: UUID
    merchant_id: int | None
    payment_id: UUID | None
    capture_id: UUID
    case_id: UUID | None = None
    amount: Decimal | None = None
    amount_text: str | None = None
    currency: str
    amount_minor: int
    reason: str | None = None
    destination: str | None = None
    step: RefundStep
    requested_by: str
    at: datetime
    reference: str | None = None  # set for refunds made directly at the gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRefund:
    refund: Refund
    account_id: int
    provider: str
    capture_reference: str
    capture_currency: str
    capture_minor: int
    session_id: UUID | None
    callback_session_id: UUID | None  # from the callback, if the session is not stored
    captured_at: datetime
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundResendState:
    status: str
    step: str
    was_handed_over: bool  # not ended, and no longer polled
    has_transfer: bool  # a final log with the refund's id exists and is not foreign
    is_disputed: bool  # a dispute holds some of the refund's amount


_ADD = (
    """
    WITH reserved AS (
        UPDATE capture
        SET reserved_minor = reserved_minor + $9
        WHERE id = $4
        RETURNING id, account_id, currency, credited, payment_id, session_id
    ), reserved_payment AS (
        UPDATE payment
        SET reserved_amount = reserved_amount + $6
        WHERE id = $3 AND $6::numeric IS NOT NULL
    ), r AS (
    INSERT INTO refund
        (id, merchant_id, payment_id, capture_id, case_id, amount, amount_text, currency,
         amount_minor, reason, destination, step, requested_by, created_at, updated_at, next_at,
         reference)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $14,
        CASE WHEN $12 IN ('queued', 'sent') THEN $14::timestamptz END, $15)
    RETURNING *
    ), mailed AS (
        INSERT INTO mail (kind, refund_id)
        SELECT 'refund_address', r.id
        FROM r
        JOIN merchant m ON m.id = r.merchant_id AND m.mail_receipts
        JOIN payment p ON p.id = r.payment_id AND p.payer_email IS NOT NULL
        WHERE r.step = 'address'
    )
    SELECT"""
    + COLUMNS
    + ","
    + ledger_store.MONEY
    + "FROM r CROSS JOIN reserved c"
    + ledger_store.MONEY_SOURCES
)


async def add(tx: Tx, new_refund: NewRefund) -> Refund:
    """Store a refund, reserve its amount and write a ledger entry.

    If the refund is waiting for the buyer's address and the merchant emails receipts, an email with
    the link is queued.

    The capture and the payment must be locked.
    """
    row = await tx.row(
        _ADD,
        new_refund.id,
        new_refund.merchant_id,
        new_refund.payment_id,
        new_refund.capture_id,
        new_refund.case_id,
        new_refund.amount,
        new_refund.amount_text,
        new_refund.currency,
        Decimal(new_refund.amount_minor),
        new_refund.reason,
        new_refund.destination,
        new_refund.step,
        new_refund.requested_by,
        new_refund.at,
        new_refund.reference,
    )
    assert row is not None  # noqa: S101 - RETURNING returns the inserted row
    await _add_ledger_entry(tx, Fact.REFUND_RESERVED, row, new_refund.id, new_refund.amount_minor)
    return from_row(row)


async def _add_ledger_entry(
    tx: Tx, fact: Fact, row: Row, refund_id: UUID, amount_minor: int
) -> None:
    await ledger_store.add(
        tx,
        [make_refund_entry(fact, ledger_store.read_captured_money(row), refund_id, amount_minor)],
    )


async def get(database: Executor, refund_id: UUID) -> Refund | None:
    row = await database.row("SELECT" + COLUMNS + "FROM refund r WHERE r.id = $1", refund_id)
    return from_row(row) if row else None


async def find_account_and_payment(
    database: Executor, refund_id: UUID
) -> tuple[int, UUID | None] | None:
    row = await database.row(
        """
        SELECT c.account_id, r.payment_id
        FROM refund r
        JOIN capture c ON c.id = r.capture_id
        WHERE r.id = $1
        """,
        refund_id,
    )
    return (row["account_id"], row["payment_id"]) if row else None


async def find_by_reference(tx: Tx, capture_id: UUID, reference: str) -> UUID | None:
    """Find a capture's refund by the gateway's reference. The capture must be locked."""
    return await tx.value(
        "SELECT id FROM refund WHERE capture_id = $1 AND reference = $2 ORDER BY id LIMIT 1",
        capture_id,
        reference,
    )


async def lock(tx: Tx, refund_id: UUID) -> Refund:
    """Lock a refund. Its payment and capture must already be locked."""
    row = await tx.row("SELECT" + COLUMNS + "FROM refund r WHERE r.id = $1 FOR UPDATE", refund_id)
    assert row is not None  # noqa: S101 - refunds are never deleted
    return from_row(row)


async def mark_succeeded(tx: Tx, refund: Refund, reference: str | None, at: datetime) -> None:
    """Mark a refund as succeeded. The caller must update the payment's status."""
    await _end_refund(tx, refund, RefundStatus.SUCCEEDED, None, reference, at)


async def mark_failed(
    tx: Tx, refund: Refund, reason: RefundFailureReason, reference: str | None, at: datetime
) -> None:
    """Mark a refund as failed and release the amount that it reserved on its payment."""
    await _end_refund(tx, refund, RefundStatus.FAILED, reason, reference, at)


async def _end_refund(
    tx: Tx,
    refund: Refund,
    status: RefundStatus,
    failure_reason: RefundFailureReason | None,
    reference: str | None,
    at: datetime,
) -> None:
    has_failed = status is RefundStatus.FAILED
    row = await tx.row(
        """
        WITH released AS (
            UPDATE capture
            SET refunded_minor = refunded_minor + $2, reserved_minor = reserved_minor - $3
            WHERE id = $4
            RETURNING id, account_id, currency, credited, payment_id, session_id
        ), released_payment AS (
            UPDATE payment
            SET reserved_amount = reserved_amount - $5
            WHERE id = $6 AND $5::numeric IS NOT NULL
        ), ended AS (
            UPDATE refund
            SET status = $7, step = 'ended', next_at = NULL, failure_reason = $8,
                updated_at = $9, reference = coalesce($10, reference)
            WHERE id = $1
        )
        SELECT"""
        + ledger_store.MONEY
        + "FROM released c"
        + ledger_store.MONEY_SOURCES,
        refund.id,
        Decimal(0 if has_failed else refund.amount_minor),
        Decimal(refund.amount_minor),
        refund.capture_id,
        refund.amount if has_failed else None,
        refund.payment_id,
        status,
        failure_reason,
        at,
        reference,
    )
    assert row is not None  # noqa: S101 - a refund's capture is never deleted
    fact = Fact.REFUND_REVERSED if has_failed else Fact.REFUND_DONE
    await _add_ledger_entry(tx, fact, row, refund.id, refund.amount_minor)


async def set_reference(tx: Tx, refund_id: UUID, reference: str) -> None:
    await tx.fetch("UPDATE refund SET reference = $2 WHERE id = $1", refund_id, reference)


async def claim_due(
    database: Executor, limit: int, lease_s: float, busy_accounts: Sequence[int]
) -> list[DueRefund]:
    """Claim due refunds for `lease_s` seconds, except those of busy accounts."""
    rows = await database.fetch(
        """
        WITH claimed AS (
            UPDATE refund
            SET next_at = clock() + $2 * interval '1 second'
            WHERE id IN (
                SELECT d.id
                FROM refund d
                JOIN capture c ON c.id = d.capture_id
                WHERE d.step IN ('queued', 'sent') AND d.next_at <= clock()
                    AND c.account_id <> ALL($3::bigint[])
                ORDER BY d.next_at
                LIMIT $1
                FOR UPDATE OF d SKIP LOCKED
            )
            RETURNING *
        )
        SELECT clock() AS now, c.account_id, a.provider, c.reference AS capture_reference,
            c.currency AS capture_currency, c.amount_minor AS capture_minor, c.session_id,
            c.captured_at, b.session_id AS callback_session_id,"""
        + COLUMNS
        + """
        FROM claimed r
        JOIN capture c ON c.id = r.capture_id
        JOIN provider_account a ON a.id = c.account_id
        LEFT JOIN callback b ON b.account_id = c.account_id AND b.callback_id = c.callback_id
        ORDER BY r.id
        """,
        limit,
        lease_s,
        busy_accounts,
    )
    return [
        build(DueRefund, row, refund=from_row(row), capture_minor=int(row["capture_minor"]))
        for row in rows
    ]


async def mark_sending(database: Executor, refund: Refund) -> bool:
    """Mark a queued refund as sent; return whether it was marked.

    It is not marked if it is no longer queued, if the buyer has changed its destination since
    `refund` was read, or if a dispute holds its money.
    """
    row = await database.row(
        f"""
        UPDATE refund r
        SET step = 'sent', sent_at = clock()
        WHERE r.id = $1 AND r.step = 'queued' AND r.destination IS NOT DISTINCT FROM $2
            AND NOT EXISTS (SELECT FROM capture c WHERE c.id = r.capture_id AND {DISPUTED})
        RETURNING r.id
        """,
        refund.id,
        refund.destination,
    )
    return row is not None


async def is_disputed(database: Executor, capture_id: UUID) -> bool:
    """Return whether a dispute holds a capture's reserved money."""
    row = await database.row("SELECT FROM capture c WHERE c.id = $1 AND " + DISPUTED, capture_id)
    return row is not None


async def skip_approval(tx: Tx, refund_id: UUID) -> None:
    await tx.fetch(
        """
        UPDATE refund
        SET step = 'queued', next_at = clock()
        WHERE id = $1 AND step = 'approval'
        """,
        refund_id,
    )


async def mark_queued(database: Executor, refund_id: UUID) -> None:
    """Requeue a sent refund. The gateway must execute each refund id at most once."""
    await database.fetch(
        "UPDATE refund SET step = 'queued' WHERE id = $1 AND step = 'sent'", refund_id
    )


async def resume_polling(tx: Tx, refund_id: UUID) -> None:
    """Poll a queued refund that was sent before, instead of sending it again."""
    await tx.fetch("UPDATE refund SET step = 'sent' WHERE id = $1 AND step = 'queued'", refund_id)


async def mark_unsent(database: Executor, refund_id: UUID, sent_before: datetime | None) -> None:
    """Requeue a refund whose gateway was not contacted, and restore its `sent_at`."""
    await database.fetch(
        """
        UPDATE refund
        SET step = 'queued', sent_at = $2
        WHERE id = $1 AND step = 'sent'
        """,
        refund_id,
        sent_before,
    )


async def schedule_inquiry(
    database: Executor, refund_id: UUID, delay_s: float, *, inquiries: int
) -> None:
    """Schedule the next attempt; `inquiries` counts attempts without a result."""
    await database.fetch(
        """
        UPDATE refund
        SET next_at = clock() + $2 * interval '1 second', inquiries = $3
        WHERE id = $1 AND step IN ('queued', 'sent')
        """,
        refund_id,
        delay_s,
        inquiries,
    )


async def stop_inquiries(database: Executor, refund_id: UUID) -> None:
    """Stop polling a refund. A callback can still settle it."""
    await database.fetch("UPDATE refund SET next_at = NULL WHERE id = $1", refund_id)


async def get_resend_state(database: Executor, refund_id: UUID) -> RefundResendState:
    row = await database.row(
        """
        SELECT f.status, f.step,
            f.step IN ('queued', 'sent') AND f.next_at IS NULL AS was_handed_over,
            EXISTS (SELECT FROM chain_refund l
                WHERE l.refund_ref = f.id AND l.disposition IS DISTINCT FROM 'foreign'
            ) AS has_transfer,
            """
        + DISPUTED
        + """ AS is_disputed
        FROM refund f
        JOIN capture c ON c.id = f.capture_id
        WHERE f.id = $1
        """,
        refund_id,
    )
    assert row is not None  # noqa: S101 - refunds are never deleted
    return RefundResendState(**row)


async def resume(tx: Tx, refund_id: UUID, approved_by: str) -> None:
    """Resume polling for another week, and allow three more reverts. The refund must be locked.

    An automatic refund then has an approver, so the limits on automatic refunds no longer apply.
    """
    await tx.fetch(
        """
        WITH reset_reverts AS (
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
        SELECT count(*) FROM marked
        """
    )


def from_row(row: Row) -> Refund:
    columns: dict[str, Any] = {name: row[name] for name in Refund.__slots__}
    columns["amount_minor"] = int(row["amount_minor"])
    columns["status"] = RefundStatus(row["status"])
    columns["step"] = RefundStep(row["step"])
    if row["failure_reason"] is not None:
        columns["failure_reason"] = RefundFailureReason(row["failure_reason"])
    return Refund(**columns)
