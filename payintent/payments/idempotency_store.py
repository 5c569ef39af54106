"""Store each idempotency key with its first request and that request's result."""

import hashlib
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

import msgspec

from payintent.core.errors import ErrorCode, RefusedError
from payintent.db.database import Executor, Tx
from payintent.payments.model import IdempotentRequest

#: The first byte of every fingerprint. Change it if the rules for fingerprints change.
_VERSION = b"\x01"
#: Conflict clause of `INSERT INTO idempotency AS i`. A key can be reused after 24 hours.
REUSE_OLD_KEY: LiteralString = """
        ON CONFLICT (merchant_id, operation, key) DO UPDATE
        SET request_hash = excluded.request_hash, payment_id = excluded.payment_id,
            country = excluded.country, denial = excluded.denial,
            refund_id = excluded.refund_id, created_at = excluded.created_at
        WHERE excluded.created_at - i.created_at >= interval '24 hours'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRequest:
    """The first request with a key, and its result: a payment, a refund or a denial."""

    request_hash: bytes
    payment_id: UUID | None = None
    country: str | None = None
    denial: str | None = None  # JSON
    refund_id: UUID | None = None


async def find_first_request(
    database: Executor, merchant_id: int, operation: str, key: UUID
) -> FirstRequest | None:
    """Return the first request that used a key within the last 24 hours."""
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
    tx: Tx, merchant_id: int, operation: str, key: UUID, first_request: FirstRequest
) -> bool:
    """Claim a key in this transaction. Returns False if it was used within the last 24 hours.

    Waits for a transaction that holds the key. Raises `LockTimeoutError` after the lock timeout.
    """
    row = await tx.row(
        """
        INSERT INTO idempotency AS i
            (merchant_id, operation, key, request_hash, payment_id, country, denial, refund_id,
             created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, clock())"""
        + REUSE_OLD_KEY
        + "RETURNING key",
        merchant_id,
        operation,
        key,
        first_request.request_hash,
        first_request.payment_id,
        first_request.country,
        first_request.denial,
        first_request.refund_id,
    )
    return row is not None


async def delete_old_keys(database: Executor, limit: int) -> int:
    """Delete up to `limit` keys older than 24 hours and return how many were deleted."""
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
        RETURNING 1 AS deleted
        """,
        limit,
    )
    return len(rows)


def compute_request_fingerprint(operation: str, **fields: object) -> bytes:
    """Return the fingerprint version and the SHA-256 digest of a request's parsed values.

    `fields` must include defaults. Fields that are None are omitted, so that adding a field does
    not change the fingerprints of requests that do not use it.
    """
    values = {name: value for name, value in fields.items() if value is not None}
    fields_json = msgspec.json.encode([operation, values], order="sorted")
    return _VERSION + hashlib.sha256(fields_json).digest()


async def claim_or_match(
    tx: Tx,
    operation: str,
    request: IdempotentRequest,
    payment_id: UUID | None,
    refund_id: UUID | None = None,
) -> FirstRequest | None:
    """Claim a key in this transaction, or return the first request that used it.

    Raises `IDEMPOTENCY_CONFLICT` if the key was used with a different request.
    """
    new_request = FirstRequest(
        request_hash=request.request_hash, payment_id=payment_id, refund_id=refund_id
    )
    if await claim_key(tx, request.merchant_id, operation, request.key, new_request):
        return None
    first_request = await find_first_request(tx, request.merchant_id, operation, request.key)
    return require_match(first_request, request)


def require_match(first_request: FirstRequest | None, request: IdempotentRequest) -> FirstRequest:
    """Return the key's first request. Raises `IDEMPOTENCY_CONFLICT` if `request` differs."""
    if first_request is None or first_request.request_hash not in {
        request.request_hash,
        _hash_raw_fields(request),
    }:
        raise RefusedError(
            ErrorCode.IDEMPOTENCY_CONFLICT, "the Idempotency-Key was used with a different request"
        )
    return first_request


def _hash_raw_fields(request: IdempotentRequest) -> bytes:
    """Return the hash of the raw fields, which was used as the fingerprint before version 1."""
    return hashlib.sha256(msgspec.json.encode(request.raw_fields)).digest()
