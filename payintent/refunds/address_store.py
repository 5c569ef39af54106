"""Store the addresses that buyers enter for refunds of deposits."""

from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

from payintent.core.money import format_smallest_units
from payintent.db.database import Executor, Tx
from payintent.db.lists import build
from payintent.refunds.model import RefundStatus, RefundStep

#: True if the buyer can enter the address for a refund of a deposit, or correct it once.
CAN_ENTER_ADDRESS: LiteralString = """
    (step IN ('address', 'approval', 'queued') AND sent_at IS NULL AND address_entries < 2)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundAddressRequest:
    """A refund of a deposit, as its buyer sees it."""

    id: UUID
    merchant_id: int
    payment_id: UUID | None
    amount: str  # in tokens
    token: str
    chain_name: str
    destination: str | None
    entries: int  # the number of times the buyer has entered an address
    status: RefundStatus
    can_enter: bool  # whether the buyer can enter or correct the address
    reference: str | None  # the hash of the last transaction


async def get_request(database: Executor, refund_id: UUID) -> RefundAddressRequest | None:
    """Return a refund of a deposit; None for any other refund."""
    row = await database.row(
        f"""
        SELECT r.id, r.merchant_id, r.payment_id, r.amount_minor::text AS amount_minor,
            t.symbol AS token, t.decimals, h.name AS chain_name, r.destination,
            r.address_entries AS entries, r.status, {CAN_ENTER_ADDRESS} AS can_enter,
            r.reference
        FROM refund r
        JOIN capture c ON c.id = r.capture_id
        JOIN chain_receipt d ON d.id = c.receipt_id AND d.disposition = 'deposit'
        JOIN chain_token t ON t.chain = d.chain AND t.address = d.token
        JOIN chain h ON h.slug = d.chain
        WHERE r.id = $1 AND r.merchant_id IS NOT NULL
        """,
        refund_id,
    )
    if row is None:
        return None
    amount = format_smallest_units(
        int(row["amount_minor"]), row["token"], row["decimals"], on_chain=True
    )
    return build(
        RefundAddressRequest,
        row,
        amount=amount or "0",
        status=RefundStatus(row["status"]),
    )


async def list_steps(database: Executor, payment_id: UUID) -> dict[UUID, RefundStep]:
    """Return the steps of a payment's refunds of deposits, oldest first."""
    rows = await database.fetch(
        """
        SELECT id, step
        FROM refund
        WHERE payment_id = $1 AND capture_id IN (SELECT c.id
            FROM capture c
            JOIN chain_receipt d ON d.id = c.receipt_id
            WHERE c.payment_id = $1 AND d.disposition = 'deposit')
        ORDER BY id
        LIMIT 20
        """,
        payment_id,
    )
    return {row["id"]: RefundStep(row["step"]) for row in rows}


async def set_buyer_address(tx: Tx, refund_id: UUID, destination: str, step: RefundStep) -> bool:
    """Set or change the destination of an unsent refund; return False if that is not possible."""
    row = await tx.row(
        f"""
        UPDATE refund
        SET destination = $2, step = $3, address_entries = address_entries + 1, approved_by = NULL,
            next_at = CASE WHEN $3 = 'queued' THEN clock() END, updated_at = clock()
        WHERE id = $1 AND {CAN_ENTER_ADDRESS}
        RETURNING id
        """,
        refund_id,
        destination,
        step,
    )
    return row is not None


async def is_own_address(database: Executor, address: bytes) -> bool:
    """Return whether an address is a token, or one of our contracts, accounts or deposit addresses.

    Addresses on all chains count, because buyers may confuse chains.
    """
    row = await database.row(
        """
        SELECT
        WHERE EXISTS (SELECT FROM chain_token WHERE address = $1)
            OR EXISTS (SELECT FROM chain_contract WHERE $1 IN (address, receiver, forwarder))
            OR EXISTS (SELECT FROM chain WHERE $1 = sweeper OR $1 = ANY(refunders))
            OR EXISTS (SELECT FROM deposit_address WHERE address = $1)
        """,
        address,
    )
    return row is not None


async def is_deposit_sender(database: Executor, capture_id: UUID, address: bytes) -> bool:
    """Return whether an address has sent a deposit to the capture's session."""
    row = await database.row(
        """
        SELECT
        FROM capture c
        JOIN chain_receipt r ON r.session_id = c.session_id AND r.disposition = 'deposit'
        WHERE c.id = $1 AND r.payer = $2
        LIMIT 1
        """,
        capture_id,
        address,
    )
    return row is not None
