"""Store new payments with their idempotency keys and checkout ids, in a single statement."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from payintent.db.batcher import LOCK_TIMEOUT_MS
from payintent.db.database import Executor
from payintent.payments.idempotency_store import REUSE_OLD_KEY
from payintent.payments.model import CreatePaymentRequest

_BATCH_LOCK_TIMEOUT = f"{LOCK_TIMEOUT_MS}ms"
_CREATE_BATCH: LiteralString = (
    """
    WITH timeout AS MATERIALIZED (
        SELECT set_config('lock_timeout', $18, true)
    ), new AS MATERIALIZED (
        SELECT n.*
        FROM timeout, unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bytea[], $5::text[],
            $6::text[], $7::text[], $8::numeric[], $9::text[], $10::text[], $11::text[],
            $12::boolean[], $13::json[], $14::text[], $15::int[], $16::text[], $17::text[])
            AS n (id, merchant_id, key, request_hash, country, checkout_id, currency, amount,
                amount_text, payer_uid, payer_email, include_pegged_assets, metadata,
                tax_manager, expires_in_s, return_url, cancel_url)
    ), claimed AS (
        INSERT INTO idempotency AS i
            (merchant_id, operation, key, request_hash, payment_id, country, created_at)
        SELECT merchant_id, 'create', key, request_hash, id, country, clock()
        FROM new"""
    + REUSE_OLD_KEY
    + """
        RETURNING i.payment_id AS id, i.created_at AS now
    ), added AS (
        INSERT INTO checkout (id, payment_id)
        SELECT new.checkout_id, new.id
        FROM claimed
        JOIN new USING (id)
    )
    INSERT INTO payment
        (id, merchant_id, checkout_id, currency, amount, amount_text, payer_uid, payer_email,
         include_pegged_assets, metadata, tax_manager, expires_at, created_at, updated_at,
         return_url, cancel_url)
    SELECT new.id, merchant_id, checkout_id, currency, amount, amount_text, payer_uid,
        payer_email, include_pegged_assets, metadata, tax_manager,
        now + expires_in_s * interval '1 second', now, now, return_url, cancel_url
    FROM claimed
    JOIN new USING (id)
    RETURNING id, created_at, expires_at
"""
)
_CREATE: LiteralString = (
    """
        WITH claimed AS (
            INSERT INTO idempotency AS i
                (merchant_id, operation, key, request_hash, payment_id, country, created_at)
            VALUES ($2, 'create', $3, $4, $1, $5, clock())"""
    + REUSE_OLD_KEY
    + """
            RETURNING i.created_at AS now
        ), added AS (
            INSERT INTO checkout (id, payment_id)
            SELECT $6, $1 FROM claimed
        )
        INSERT INTO payment
            (id, merchant_id, checkout_id, currency, amount, amount_text, payer_uid, payer_email,
             include_pegged_assets, metadata, tax_manager, expires_at, created_at, updated_at,
             return_url, cancel_url)
        SELECT $1, $2, $6, $7, $8, $9, $10, $11, $12, $13, $14,
            now + $15 * interval '1 second', now, now, $16, $17
        FROM claimed
        RETURNING created_at, expires_at
        """
)


@dataclass(frozen=True, slots=True)
class NewPayment:
    id: UUID
    checkout_id: str
    request: CreatePaymentRequest


async def create(database: Executor, new_payment: NewPayment) -> tuple[datetime, datetime] | None:
    """Write the key, checkout and payment; return `created_at` and `expires_at`.

    Returns None if the key was used within the last 24 hours. Waits for a request that holds the
    key. Raises `LockTimeoutError` after the lock timeout.
    """
    request, sealing = new_payment.request, database.payer_sealing
    row = await database.row(
        _CREATE,
        new_payment.id,
        request.merchant_id,
        request.key,
        request.request_hash,
        request.country,
        new_payment.checkout_id,
        request.currency,
        request.amount,
        request.amount_text,
        request.payer_uid,
        sealing.seal_email(new_payment.id, request.payer_email),
        request.include_pegged_assets,
        sealing.seal_metadata(new_payment.id, request.metadata),
        request.tax_manager,
        request.expires_in_s,
        request.return_url,
        request.cancel_url,
    )
    return (row["created_at"], row["expires_at"]) if row else None


async def create_batch(
    database: Executor, batch: Sequence[NewPayment]
) -> list[tuple[datetime, datetime] | None]:
    """Create payments with different keys in a single statement. See `create`.

    Waits only briefly for a request that holds one of the keys, because a longer wait would delay
    the whole batch. After this wait, raises `LockTimeoutError` without writing anything.
    """
    # Sorted, so that concurrent batches cannot deadlock.
    sorted_batch = sorted(
        batch, key=lambda new_payment: (new_payment.request.merchant_id, new_payment.request.key)
    )
    requests = [new_payment.request for new_payment in sorted_batch]
    sealing = database.payer_sealing
    rows = await database.fetch(
        _CREATE_BATCH,
        [new_payment.id for new_payment in sorted_batch],
        [request.merchant_id for request in requests],
        [request.key for request in requests],
        [request.request_hash for request in requests],
        [request.country for request in requests],
        [new_payment.checkout_id for new_payment in sorted_batch],
        [request.currency for request in requests],
        [request.amount for request in requests],
        [request.amount_text for request in requests],
        [request.payer_uid for request in requests],
        [
            sealing.seal_email(new_payment.id, new_payment.request.payer_email)
            for new_payment in sorted_batch
        ],
        [request.include_pegged_assets for request in requests],
        [
            sealing.seal_metadata(new_payment.id, new_payment.request.metadata)
            for new_payment in sorted_batch
        ],
        [request.tax_manager for request in requests],
        [request.expires_in_s for request in requests],
        [request.return_url for request in requests],
        [request.cancel_url for request in requests],
        _BATCH_LOCK_TIMEOUT,
    )
    times = {row["id"]: (row["created_at"], row["expires_at"]) for row in rows}
    return [times.get(new_payment.id) for new_payment in batch]
