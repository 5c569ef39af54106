"""Store idempotency keys with their first request and its result."""

from dataclasses import dataclass
from uuid import UUID

from payintent.storage.database import Executor, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRequest:
    """The first request with a key; it has a payment, a refund or a denial."""

    request_hash: bytes
    payment_id: UUID | None
    country: str | None
    denial: str | None = None  # JSON
    refund_id: UUID | None = None


async def find_first_request(
    database: Executor, merchant_id: int, operation: str, key: UUID
) -> FirstRequest | None:
    """Find the request that used a key in the last 24 hours."""
    row = await database.row(
        """
        SELECT request_hash, payment_id, country, denial, refund_id
        FROM idempotency
        WHERE merchant_id = $1 AND operation = $2 AND key = $3
            AND created_at > clock() - interval '24 hours'
        """,
        merchant_id,
        operation,
        key,
    )
    return FirstRequest(**row) if row else None


async def claim_key(
    tx: Tx, merchant_id: int, operation: str, key: UUID, first: FirstRequest
) -> bool:
    """Claim a key in this transaction; returns False if it is already claimed.

    Waits for a transaction that holds the key, up to the lock timeout (`LockTimeoutError`).
    """
    row = await tx.row(
        """
        INSERT INTO idempotency AS i
            (merchant_id, operation, key, request_hash, payment_id, country, denial, refund_id,
             created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, clock())
        ON CONFLICT (merchant_id, operation, key) DO UPDATE
        SET request_hash = excluded.request_hash, payment_id = excluded.payment_id,
            country = excluded.country, denial = excluded.denial,
            refund_id = excluded.refund_id, created_at = excluded.created_at
        WHERE excluded.created_at - i.created_at >= interval '24 hours'
        RETURNING key
        """,
        merchant_id,
        operation,
        key,
        first.request_hash,
        first.payment_id,
        first.country,
        first.denial,
        first.refund_id,
    )
    return row is not None


async def delete_old_keys(database: Executor, limit: int) -> int:
    """Delete at most `limit` keys older than 24 hours; returns their number."""
    rows = await database.fetch(
        """
        DELETE FROM idempotency
        WHERE ctid = ANY(ARRAY(
            SELECT ctid
            FROM idempotency
            WHERE created_at <= clock() - interval '24 hours'
            ORDER BY created_at
            LIMIT $1
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING 1 AS gone
        """,
        limit,
    )
    return len(rows)
