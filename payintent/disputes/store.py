"""Disputes of captures, and the amounts that they hold."""

from decimal import Decimal
from uuid import UUID

from payintent.accounting import ledger_store as ledger
from payintent.db.database import Row, Tx
from payintent.db.lists import build
from payintent.disputes.model import Dispute
from payintent.gateways.port import DisputedFunds, DisputeState

_COLUMNS = """
    d.id, d.capture_id, d.case_id, d.account_id, d.reference, d.state, d.funds, d.amount_minor,
    d.currency, d.reason, d.respond_by
"""


async def lock(tx: Tx, account_id: int, reference: str) -> Dispute | None:
    """Lock a dispute by its gateway's reference; lock its capture first."""
    row = await tx.row(
        "SELECT"
        + _COLUMNS
        + """
        FROM dispute d
        WHERE d.account_id = $1 AND d.reference = $2
        FOR NO KEY UPDATE
        """,
        account_id,
        reference,
    )
    return _from_row(row) if row else None


async def add(tx: Tx, dispute: Dispute) -> None:
    await tx.fetch(
        """
        INSERT INTO dispute
            (id, account_id, reference, capture_id, case_id, state, funds, amount_minor, currency,
             reason, respond_by, held_minor)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        """,
        dispute.id,
        dispute.account_id,
        dispute.reference,
        dispute.capture_id,
        dispute.case_id,
        dispute.state,
        dispute.funds,
        Decimal(dispute.amount_minor),
        dispute.currency,
        dispute.reason,
        dispute.respond_by,
        Decimal(dispute.held_minor),
    )
    await _update_disputed_amount(tx, dispute.capture_id)


async def update(tx: Tx, dispute: Dispute) -> None:
    await tx.fetch(
        """
        UPDATE dispute
        SET state = $2, funds = $3, amount_minor = $4, currency = $5, reason = $6, respond_by = $7,
            held_minor = $8, updated_at = clock()
        WHERE id = $1
        """,
        dispute.id,
        dispute.state,
        dispute.funds,
        Decimal(dispute.amount_minor),
        dispute.currency,
        dispute.reason,
        dispute.respond_by,
        Decimal(dispute.held_minor),
    )
    await _update_disputed_amount(tx, dispute.capture_id)


async def _update_disputed_amount(tx: Tx, capture_id: UUID) -> None:
    """Update the disputed amount of a locked capture and write a ledger entry.

    A dispute in another currency than the capture's holds the full capture.
    """
    await tx.fetch(
        """
        UPDATE capture c
        SET disputed_minor = (
            SELECT coalesce(sum(
                CASE WHEN d.currency = c.currency OR d.held_minor = 0
                    THEN d.held_minor ELSE c.amount_minor END), 0)
            FROM dispute d
            WHERE d.capture_id = c.id
        )
        WHERE c.id = $1
        """,
        capture_id,
    )
    await ledger.record_disputes(tx, [capture_id])


def _from_row(row: Row) -> Dispute:
    return build(
        Dispute,
        row,
        amount_minor=int(row["amount_minor"]),
        state=DisputeState(row["state"]),
        funds=DisputedFunds(row["funds"]),
    )
