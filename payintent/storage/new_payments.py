"""Payments as they are created: each with its key and its checkout id, in one statement."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from payintent.domain.payment import CreatePaymentRequest
from payintent.storage.batcher import LOCK_TIMEOUT_MS
from payintent.storage.database import Executor
from payintent.storage.merchant_cells import MerchantPlace

_BATCH_LOCK_TIMEOUT = f"{LOCK_TIMEOUT_MS}ms"
#: A key is free again after 24 hours.
CLAIM_AGAIN: LiteralString = """
        ON CONFLICT (merchant_id, operation, key) DO UPDATE
        SET request_hash = excluded.request_hash, payment_id = excluded.payment_id,
            country = excluded.country, denial = NULL, created_at = excluded.created_at
        WHERE excluded.created_at - i.created_at >= interval '24 hours'
"""
_BATCH_BEGIN: LiteralString = """
    WITH patience AS MATERIALIZED (
        SELECT set_config('lock_timeout', $16, true)
    ), new AS MATERIALIZED (
        SELECT n.*
        FROM patience, unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bytea[], $5::text[],
            $6::text[], $7::text[], $8::numeric[], $9::text[], $10::text[], $11::text[],
            $12::boolean[], $13::json[], $14::text[], $15::int[]"""
_BATCH_CLAIM: LiteralString = """)
            AS n (id, merchant_id, key, request_hash, country, checkout_id, currency, amount,
                amount_text, payer_uid, payer_email, include_pegged_assets, metadata,
                tax_manager, expires_in_s"""
_BATCH_NEW: LiteralString = """)
    ), claimed AS (
        INSERT INTO idempotency AS i
            (merchant_id, operation, key, request_hash, payment_id, country, created_at)
        SELECT merchant_id, 'create', key, request_hash, id, country, clock()
        FROM new"""
_BATCH_END: LiteralString = (
    CLAIM_AGAIN
    + """
        RETURNING i.payment_id AS id, i.created_at AS now
    ), named AS (
        INSERT INTO checkout (id, payment_id)
        SELECT new.checkout_id, new.id
        FROM claimed
        JOIN new USING (id)
    )
    INSERT INTO payment
        (id, merchant_id, checkout_id, currency, amount, amount_text, payer_uid, payer_email,
         include_pegged_assets, metadata, tax_manager, expires_at, created_at, updated_at)
    SELECT new.id, merchant_id, checkout_id, currency, amount, amount_text, payer_uid,
        payer_email, include_pegged_assets, metadata, tax_manager,
        now + expires_in_s * interval '1 second', now, now
    FROM claimed
    JOIN new USING (id)
    RETURNING id, created_at, expires_at
"""
)
_CREATE_BATCH: LiteralString = _BATCH_BEGIN + _BATCH_CLAIM + _BATCH_NEW + _BATCH_END
#: Of an installation with several cells: rows of merchants that are not placed here are left out.
#: Each merchant's place is looked at once, and none of its rows is written before.
_CREATE_BATCH_IN_PLACE: LiteralString = (
    _BATCH_BEGIN
    + ", $17::int[]"
    + _BATCH_CLAIM
    + ", place_number"
    + _BATCH_NEW
    + """
        WHERE place_number = ANY (ARRAY(
            SELECT p.number::int
            FROM unnest($18::bigint[], $19::timestamptz[])
                WITH ORDINALITY AS p (merchant_id, since, number)
            WHERE takes_creates(p.merchant_id, $20, p.since)))"""
    + _BATCH_END
)
_CREATE_BEGIN: LiteralString = """
        WITH claimed AS (
            INSERT INTO idempotency AS i
                (merchant_id, operation, key, request_hash, payment_id, country, created_at)
            """
_CREATE_END: LiteralString = (
    CLAIM_AGAIN
    + """
            RETURNING i.created_at AS now
        ), named AS (
            INSERT INTO checkout (id, payment_id)
            SELECT $6, $1 FROM claimed
        )
        INSERT INTO payment
            (id, merchant_id, checkout_id, currency, amount, amount_text, payer_uid, payer_email,
             include_pegged_assets, metadata, tax_manager, expires_at, created_at, updated_at)
        SELECT $1, $2, $6, $7, $8, $9, $10, $11, $12, $13, $14,
            now + $15 * interval '1 second', now, now
        FROM claimed
        RETURNING created_at, expires_at
        """
)
_CREATE: LiteralString = (
    _CREATE_BEGIN + "VALUES ($2, 'create', $3, $4, $1, $5, clock())" + _CREATE_END
)
_CREATE_IN_PLACE: LiteralString = (
    _CREATE_BEGIN
    + "SELECT $2, 'create', $3, $4, $1, $5, clock() WHERE takes_creates($2, $16, $17)"
    + _CREATE_END
)


#: The place of each row by its number; the merchant and the moment of each place; the cell.
PlaceColumns = tuple[list[int], list[int], list[datetime | None], int]


@dataclass(frozen=True, slots=True)
class NewPayment:
    """A payment to be written, with the ids that it will have."""

    id: UUID
    checkout_id: str
    request: CreatePaymentRequest
    place: MerchantPlace | None = None  # its merchant's, where there are several cells


async def create(database: Executor, new: NewPayment) -> tuple[datetime, datetime] | None:
    """Write key, checkout and payment in one statement; give `created_at` and `expires_at`.

    `None` where the key is taken and younger than 24 hours, or where the merchant's place is not
    open in this cell. Waits for another request with the
    same key that has not committed, at most the lock timeout (`LockTimeoutError`).
    """
    if new.place is None:
        row = await database.row(_CREATE, *_values(database, new))
    else:
        place = new.place
        row = await database.row(_CREATE_IN_PLACE, *_values(database, new), place.cell, place.since)
    return (row["created_at"], row["expires_at"]) if row else None


def _values(database: Executor, new: NewPayment) -> tuple[object, ...]:
    request, terms, sealing = new.request, new.request.terms, database.payer_sealing
    return (
        new.id,
        request.merchant_id,
        request.key,
        request.request_hash,
        request.country,
        new.checkout_id,
        terms.currency,
        terms.amount,
        terms.amount_text,
        terms.payer_uid,
        sealing.email_to_store(new.id, terms.payer_email),
        terms.include_pegged_assets,
        sealing.metadata_to_store(new.id, terms.metadata),
        terms.tax_manager,
        request.expires_in_s,
    )


async def create_batch(
    database: Executor, batch: Sequence[NewPayment]
) -> list[tuple[datetime, datetime] | None]:
    """Write payments as `create` does, in one statement; gives what it gives, in their order.

    No two have one key. Waits briefly where another request holds one of the keys
    (`LockTimeoutError`), so that the others are not held up; nothing is written then.
    """
    ordered = in_order(batch)
    columns = _columns(database, ordered)
    if places := place_columns(ordered):
        rows = await database.fetch(_CREATE_BATCH_IN_PLACE, *columns, *places)
    else:
        rows = await database.fetch(_CREATE_BATCH, *columns)
    times = {row["id"]: (row["created_at"], row["expires_at"]) for row in rows}
    return [times.get(new.id) for new in batch]


def place_columns(ordered: Sequence[NewPayment]) -> PlaceColumns | None:
    """Return the number of each row's place, and the places; None where there is one cell."""
    placed = [(new.request.merchant_id, new.place) for new in ordered if new.place is not None]
    if not placed:  # all rows have one, or none has
        return None
    numbers = {item: number for number, item in enumerate(dict.fromkeys(placed), 1)}
    return (
        [numbers[item] for item in placed],
        [merchant_id for merchant_id, _ in numbers],
        [place.since for _, place in numbers],
        placed[0][1].cell,
    )


def in_order(batch: Sequence[NewPayment]) -> list[NewPayment]:
    """Put payments in the order in which all claim keys: batches never wait for each other."""
    return sorted(batch, key=lambda new: (new.request.merchant_id, new.request.key))


def key_columns(ordered: Sequence[NewPayment]) -> tuple[list[object], ...]:
    """Give the columns of keys: payment, merchant, key, digest of the request, country."""
    requests = [new.request for new in ordered]
    return (
        [new.id for new in ordered],
        [request.merchant_id for request in requests],
        [request.key for request in requests],
        [request.request_hash for request in requests],
        [request.country for request in requests],
    )


def payment_columns(database: Executor, ordered: Sequence[NewPayment]) -> tuple[list[object], ...]:
    """Give the columns of payments: id, merchant, checkout, terms, and how long each is open."""
    return (
        [new.id for new in ordered],
        [new.request.merchant_id for new in ordered],
        [new.checkout_id for new in ordered],
        *_term_columns(database, ordered),
    )


def _columns(database: Executor, ordered: Sequence[NewPayment]) -> tuple[object, ...]:
    return (
        *key_columns(ordered),
        [new.checkout_id for new in ordered],
        *_term_columns(database, ordered),
        _BATCH_LOCK_TIMEOUT,
    )


def _term_columns(database: Executor, ordered: Sequence[NewPayment]) -> tuple[list[object], ...]:
    terms = [new.request.terms for new in ordered]
    sealing = database.payer_sealing
    return (
        [term.currency for term in terms],
        [term.amount for term in terms],
        [term.amount_text for term in terms],
        [term.payer_uid for term in terms],
        [sealing.email_to_store(new.id, new.request.terms.payer_email) for new in ordered],
        [term.include_pegged_assets for term in terms],
        [sealing.metadata_to_store(new.id, new.request.terms.metadata) for new in ordered],
        [term.tax_manager for term in terms],
        [new.request.expires_in_s for new in ordered],
    )
