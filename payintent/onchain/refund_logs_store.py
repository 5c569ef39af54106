"""Stores final `Refunded` logs, their dispositions, and attempts to send refunds."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from uuid import UUID

from payintent.db.database import Executor, Row, Tx
from payintent.evm.port import RefundedLog
from payintent.gateways.port import GatewayRefundRequest
from payintent.refunds.model import AUTO_REFUND

#: True if log `l` on chain `h` is from one of our senders and has the refund's values.
_MATCHES_REFUND = """
    l.sender = ANY(h.refunders) AND l.account_id = coalesce(k.refund_account_id, c.account_id)
    AND l.token = r.token
    AND l.amount = {amount} AND l.destination = {destination}
"""
_HEX_TO_BYTES = "decode(right({}, -2), 'hex')"  # converts `0x` and hex digits to bytes


class RefundLogDisposition(StrEnum):
    SETTLES = "settles"
    UNKNOWN = "unknown"  # does not reference any of our refunds
    FOREIGN = "foreign"  # references our refund, but has a foreign sender
    MISMATCHED = "mismatched"  # sent by us, but the values differ from the refund
    DUPLICATE = "twice"  # an earlier log has already settled this refund


@dataclass(frozen=True, slots=True, kw_only=True)
class OnchainRefundFacts:
    chain: str
    network_id: int
    contract: bytes  # the recipient of the payment
    uuid: bytes
    token: bytes
    payer: bytes | None  # None after its retention period
    refunder: bytes | None  # the configured sender
    sender: bytes | None  # the first sender; every attempt must use it
    last_tx_hash: bytes | None  # of the last attempt
    attempt_age_s: float  # since the last call to the signer
    last_final_block: int  # the last final block that was read
    halted: bool  # payments on the chain may have been reverted
    final_tx_hash: bytes | None  # the refund's transaction in a final block
    automatic: bool  # triggered by a merchant's setting and not approved by an operator


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRefundLog:
    id: UUID
    account_id: int
    log: RefundedLog


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifiedRefundLog:
    """A locked log. `refund_id` is None if the log does not reference one of our refunds."""

    disposition: RefundLogDisposition
    refund_id: UUID | None
    capture_id: UUID | None
    tx_hash: bytes


async def add(tx: Tx, chain: str, logs: Sequence[NewRefundLog]) -> int:
    """Store new logs as unclassified, and return their number."""
    if not logs:
        return 0
    rows = await tx.fetch(
        """
        INSERT INTO chain_refund (id, chain, account_id, block, tx_hash, log_index, uuid,
            refund_ref, token, amount, destination, sender, final_at)
        SELECT id, $1, account_id, block, tx_hash, log_index, uuid, refund_ref, token,
            amount::numeric, destination, sender, clock()
        FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bytea[], $6::int[], $7::bytea[],
            $8::uuid[], $9::bytea[], $10::text[], $11::bytea[], $12::bytea[]) AS l (id, account_id,
            block, tx_hash, log_index, uuid, refund_ref, token, amount, destination, sender)
        ON CONFLICT ON CONSTRAINT chain_refund_once DO NOTHING
        RETURNING id
        """,
        chain,
        [log.id for log in logs],
        [log.account_id for log in logs],
        [log.log.block_number for log in logs],
        [log.log.tx_hash for log in logs],
        [log.log.log_index for log in logs],
        [log.log.uuid for log in logs],
        [UUID(bytes=log.log.refund_id) for log in logs],
        [log.log.token for log in logs],
        [str(log.log.amount) for log in logs],
        [log.log.to for log in logs],
        [log.log.sender for log in logs],
    )
    return len(rows)


async def list_unclassified(database: Executor, chain: str, limit: int) -> list[UUID]:
    """List unclassified logs in chain order."""
    rows = await database.fetch(
        """
        SELECT id
        FROM chain_refund
        WHERE chain = $1 AND disposition IS NULL
        ORDER BY block, log_index
        LIMIT $2
        """,
        chain,
        limit,
    )
    return [row["id"] for row in rows]


async def lock(tx: Tx, log_id: UUID) -> ClassifiedRefundLog | None:
    """Lock and classify a log. Returns None if it is already classified.

    Call this before locking any payment.
    """
    row = await tx.row(
        "SELECT id FROM chain_refund WHERE id = $1 AND disposition IS NULL FOR UPDATE", log_id
    )
    if row is None:
        return None
    row = await tx.row(
        """
        SELECT l.tx_hash, f.id AS refund_id, f.capture_id, l.sender = ANY(h.refunders) AS is_ours,
            coalesce("""
        + _MATCHES_REFUND.format(
            amount="f.amount_minor", destination=_HEX_TO_BYTES.format("f.destination")
        )
        + """, false) AS matches,
            EXISTS (SELECT FROM chain_refund o WHERE o.refund_id = f.id) AS is_duplicate
        FROM chain_refund l
        JOIN chain h ON h.slug = l.chain
        LEFT JOIN refund f ON f.id = l.refund_ref
        LEFT JOIN capture c ON c.id = f.capture_id
        LEFT JOIN chain_contract k ON k.account_id = c.account_id
        LEFT JOIN chain_receipt r ON r.id = c.receipt_id
        WHERE l.id = $1
        """,
        log_id,
    )
    assert row is not None  # noqa: S101 - the row is locked
    return ClassifiedRefundLog(
        disposition=_classify(row),
        refund_id=row["refund_id"],
        capture_id=row["capture_id"],
        tx_hash=row["tx_hash"],
    )


def _classify(row: Row) -> RefundLogDisposition:
    if row["refund_id"] is None:
        return RefundLogDisposition.UNKNOWN
    if not row["is_ours"]:
        return RefundLogDisposition.FOREIGN
    if row["is_duplicate"]:
        return RefundLogDisposition.DUPLICATE
    return RefundLogDisposition.SETTLES if row["matches"] else RefundLogDisposition.MISMATCHED


async def set_disposition(tx: Tx, log_id: UUID, classified: ClassifiedRefundLog) -> None:
    settles = classified.disposition is RefundLogDisposition.SETTLES
    await tx.fetch(
        "UPDATE chain_refund SET disposition = $2, refund_id = $3 WHERE id = $1",
        log_id,
        classified.disposition,
        classified.refund_id if settles else None,
    )


async def reset_dispositions(tx: Tx, chain: str, sender: bytes) -> None:
    """Reset foreign logs to unclassified if their sender has become one of our senders."""
    await tx.fetch(
        """
        UPDATE chain_refund
        SET disposition = NULL
        WHERE chain = $1 AND sender = $2 AND disposition = 'foreign'
        """,
        chain,
        sender,
    )


async def get_refund_facts(
    database: Executor, account_id: int, request: GatewayRefundRequest
) -> OnchainRefundFacts | None:
    """Return a refund's on-chain facts, or None if its money is not on a chain."""
    row = await database.row(
        """
        SELECT r.chain, h.network_id, coalesce(p.address, k.address) AS contract, r.uuid, r.token,
            CASE WHEN k.forwarder IS NULL THEN r.payer END AS payer,
            h.refunders[cardinality(h.refunders)] AS refunder, t.sender, t.tx_hash AS last_tx_hash,
            coalesce(extract(epoch FROM clock() - t.asked_at), 0)::float8 AS attempt_age_s,
            coalesce(u.block, 0) AS last_final_block, u.halted IS NOT NULL AS halted,
            EXISTS (SELECT FROM refund f WHERE f.id = $3 AND f.requested_by = $6
                AND f.approved_by IS NULL) AS automatic,
            (SELECT l.tx_hash FROM chain_refund l WHERE l.refund_ref = $3 AND"""
        + _MATCHES_REFUND.format(
            amount="$4::numeric",
            destination=f"coalesce({_HEX_TO_BYTES.format('$5::text')}, r.payer)",
        )
        + """LIMIT 1) AS final_tx_hash
        FROM capture c
        JOIN chain_receipt r ON r.id = c.receipt_id
        JOIN chain_contract k ON k.account_id = c.account_id
        LEFT JOIN chain_contract p ON p.account_id = k.refund_account_id
        JOIN chain h ON h.slug = r.chain
        LEFT JOIN chain_cursor u ON u.chain = r.chain
        LEFT JOIN chain_refund_try t ON t.refund_id = $3
        WHERE c.account_id = $1 AND c.reference = $2
        """,
        account_id,
        request.capture.reference,
        request.refund_id,
        Decimal(request.amount_minor),
        request.destination,
        AUTO_REFUND,
    )
    return OnchainRefundFacts(**row) if row else None


async def claim_for_sender(database: Executor, refund_id: UUID, sender: bytes) -> bool:
    """Record that the signer will be called. Returns False if another sender was used before."""
    row = await database.row(
        """
        INSERT INTO chain_refund_try AS t (refund_id, sender)
        VALUES ($1, $2)
        ON CONFLICT (refund_id) DO UPDATE
        SET asked_at = excluded.asked_at
        WHERE t.sender = excluded.sender
        RETURNING refund_id
        """,
        refund_id,
        sender,
    )
    return row is not None


async def set_transaction_hash(database: Executor, refund_id: UUID, tx_hash: bytes) -> None:
    await database.fetch(
        "UPDATE chain_refund_try SET tx_hash = $2 WHERE refund_id = $1", refund_id, tx_hash
    )


async def count_revert(database: Executor, refund_id: UUID, tx_hash: bytes) -> int:
    """Count a final revert, once per transaction. Returns the refund's revert count."""
    return await database.value(
        """
        UPDATE chain_refund_try
        SET reverts = reverts + (tx_hash = $2)::int, tx_hash = nullif(tx_hash, $2)
        WHERE refund_id = $1
        RETURNING reverts
        """,
        refund_id,
        tx_hash,
    )
