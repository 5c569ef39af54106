"""Payments as they are created in a cell of Citus: three statements of one transaction.

What `new_payments.py` writes by one statement, Citus takes apart: each part that writes is sent to
the coordinator and back. Rows of VALUES go straight to their node, so one payment has its own form.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import LiteralString

from payintent.storage.database import Tx
from payintent.storage.new_payments import (
    CLAIM_AGAIN,
    NewPayment,
    in_order,
    key_columns,
    payment_columns,
    place_columns,
)

_CLAIM: LiteralString = (
    """
    INSERT INTO idempotency AS i
        (merchant_id, operation, key, request_hash, payment_id, country, created_at)
    VALUES ($2, 'create', $3, $4, $1, $5, clock())
    """
    + CLAIM_AGAIN
    + "RETURNING i.created_at AS now"
)
_NAME: LiteralString = "INSERT INTO checkout (id, payment_id) VALUES ($1, $2)"
_WRITE: LiteralString = """
    INSERT INTO payment
        (id, merchant_id, checkout_id, currency, amount, amount_text, payer_uid, payer_email,
         include_pegged_assets, metadata, tax_manager, expires_at, created_at, updated_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
        $13::timestamptz + $12 * interval '1 second', $13, $13)
    RETURNING created_at, expires_at
"""
_CLAIM_BATCH: LiteralString = (
    """
    INSERT INTO idempotency AS i
        (merchant_id, operation, key, request_hash, payment_id, country, created_at)
    SELECT merchant_id, 'create', key, request_hash, id, country, clock()
    FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bytea[], $5::text[])
        AS n (id, merchant_id, key, request_hash, country)
    """
    + CLAIM_AGAIN
    + "RETURNING i.payment_id AS id, i.created_at AS now"
)
#: As in `new_payments.py`: merchants that are not placed here are left out, each looked at once.
_IN_PLACE: LiteralString = """
    SELECT p.number::int AS number
    FROM unnest($1::bigint[], $2::timestamptz[]) WITH ORDINALITY AS p (merchant_id, since, number)
    WHERE takes_creates(p.merchant_id, $3, p.since)
"""
_NAME_BATCH: LiteralString = """
    INSERT INTO checkout (id, payment_id)
    SELECT id, payment_id
    FROM unnest($1::text[], $2::uuid[]) AS n (id, payment_id)
"""
_WRITE_BATCH: LiteralString = """
    INSERT INTO payment
        (id, merchant_id, checkout_id, currency, amount, amount_text, payer_uid, payer_email,
         include_pegged_assets, metadata, tax_manager, expires_at, created_at, updated_at)
    SELECT id, merchant_id, checkout_id, currency, amount, amount_text, payer_uid, payer_email,
        include_pegged_assets, metadata, tax_manager,
        $13::timestamptz + expires_in_s * interval '1 second', $13, $13
    FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::numeric[], $6::text[],
        $7::text[], $8::text[], $9::boolean[], $10::json[], $11::text[], $12::int[])
        AS n (id, merchant_id, checkout_id, currency, amount, amount_text, payer_uid,
            payer_email, include_pegged_assets, metadata, tax_manager, expires_in_s)
    RETURNING id, created_at, expires_at
"""


async def create(tx: Tx, new: NewPayment) -> tuple[datetime, datetime] | None:
    """Write a payment as `new_payments.create` does; gives what it gives."""
    if not await _placed(tx, [new]):
        return None
    claimed = await tx.row(_CLAIM, *_first_row(key_columns([new])))
    if claimed is None:
        return None
    await tx.fetch(_NAME, new.checkout_id, new.id)
    row = await tx.row(_WRITE, *_first_row(payment_columns(tx, [new])), claimed["now"])
    assert row is not None  # noqa: S101 - RETURNING gives the written row
    return row["created_at"], row["expires_at"]


async def create_batch(
    tx: Tx, batch: Sequence[NewPayment]
) -> list[tuple[datetime, datetime] | None]:
    """Write payments as `new_payments.create_batch` does; gives what it gives, in their order."""
    ordered = await _placed(tx, in_order(batch))
    claimed = await tx.fetch(_CLAIM_BATCH, *key_columns(ordered)) if ordered else []
    if not claimed:
        return [None] * len(batch)
    ours = {row["id"] for row in claimed}
    new = [item for item in ordered if item.id in ours]
    await tx.fetch(_NAME_BATCH, [item.checkout_id for item in new], [item.id for item in new])
    rows = await tx.fetch(_WRITE_BATCH, *payment_columns(tx, new), claimed[0]["now"])
    times = {row["id"]: (row["created_at"], row["expires_at"]) for row in rows}
    return [times.get(item.id) for item in batch]


def _first_row(columns: tuple[list[object], ...]) -> list[object]:
    """Give the only row of some columns."""
    return [value for [value] in columns]


async def _placed(tx: Tx, ordered: list[NewPayment]) -> list[NewPayment]:
    """Leave out those whose merchants' places are not open in this cell, and fence the others."""
    if (places := place_columns(ordered)) is None:
        return ordered
    numbers, *columns = places
    taken = {row["number"] for row in await tx.fetch(_IN_PLACE, *columns)}
    return [item for item, number in zip(ordered, numbers, strict=True) if number in taken]
