"""Find and re-encrypt payer data that is stored in plain text or sealed with an older key."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import LiteralString, TypeVar
from uuid import UUID

from payintent.db.database import Executor, Row, Tx
from payintent.db.sealing import PayerSealing, report_unreadable
from payintent.runtime.encryption import EncryptionKeyError

_Resealed = TypeVar("_Resealed")


def _other_keys(
    table: LiteralString, is_sealed: LiteralString, text: LiteralString
) -> LiteralString:
    """Select values sealed with any key except `$1`, using a partial index on the key name."""
    return f"""
        SELECT id FROM {table} WHERE {is_sealed} AND split_part({text}, ':', 2) < $1
        UNION ALL
        SELECT id FROM {table} WHERE {is_sealed} AND split_part({text}, ':', 2) > $1
        LIMIT $2
    """


_OTHER_EMAILS = _other_keys("payment", "starts_with(payer_email, 'sealed:')", "payer_email")
_OTHER_METADATA = _other_keys("payment", "json_typeof(metadata) = 'string'", "metadata #>> '{}'")
_OTHER_BODIES = _other_keys("event", "starts_with(body, 'sealed:')", "body")
#: A lower bound for the ids of the last `$2` seconds. Ids are ordered by time.
_IDS_BEFORE: LiteralString = """(lpad(to_hex((extract(epoch FROM clock()
    - $2 * interval '1 second') * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid"""


@dataclass(frozen=True, slots=True)
class ScanResult:
    last: UUID | None  # the last scanned row; None: there were no more rows
    stale_ids: Sequence[UUID]  # rows that must be sealed or resealed


async def list_payments_of_other_keys(database: Executor, limit: int) -> list[UUID]:
    """List payments with a value that is sealed with an older key."""
    writer = database.payer_sealing.writer
    emails = await database.fetch(_OTHER_EMAILS, writer, limit)
    metadata = await database.fetch(_OTHER_METADATA, writer, limit)
    return sorted({row["id"] for row in (*emails, *metadata)})[:limit]


async def list_events_of_other_keys(database: Executor, limit: int) -> list[UUID]:
    """List events whose body is sealed with an older key."""
    rows = await database.fetch(_OTHER_BODIES, database.payer_sealing.writer, limit)
    return sorted(row["id"] for row in rows)


async def count_of_other_keys(database: Executor, limit: int) -> int:
    """Count the values that are sealed with older keys, up to `limit` per column."""
    writer = database.payer_sealing.writer
    emails = await database.value(f"SELECT count(*) FROM ({_OTHER_EMAILS}) due", writer, limit)
    metadata = await database.value(f"SELECT count(*) FROM ({_OTHER_METADATA}) due", writer, limit)
    bodies = await database.value(f"SELECT count(*) FROM ({_OTHER_BODIES}) due", writer, limit)
    return emails + metadata + bodies


async def find_sealing_keys(database: Executor, names: Sequence[str]) -> list[str]:
    """Return the keys in `names` that are still used by a sealed value."""
    rows = await database.fetch(
        """
        SELECT name
        FROM unnest($1::text[]) AS n (name)
        WHERE EXISTS (SELECT FROM payment
                WHERE starts_with(payer_email, 'sealed:')
                    AND split_part(payer_email, ':', 2) = n.name)
            OR EXISTS (SELECT FROM payment
                WHERE json_typeof(metadata) = 'string'
                    AND split_part(metadata #>> '{}', ':', 2) = n.name)
            OR EXISTS (SELECT FROM event
                WHERE starts_with(body, 'sealed:') AND split_part(body, ':', 2) = n.name)
        """,
        names,
    )
    return [row["name"] for row in rows]


async def scan_payments(
    database: Executor, after: UUID, settled_s: float, limit: int
) -> ScanResult:
    """Scan payments in id order, except payments of the last `settled_s` seconds."""
    rows = await database.fetch(
        f"""
        SELECT id, payer_email, metadata
        FROM payment
        WHERE id > $1 AND id < {_IDS_BEFORE}
        ORDER BY id
        LIMIT $3
        """,
        after,
        settled_s,
        limit,
    )
    return _find_stale(rows, database.payer_sealing, "payer_email", "metadata")


async def scan_events(database: Executor, after: UUID, settled_s: float, limit: int) -> ScanResult:
    """Scan events in id order, except events of the last `settled_s` seconds."""
    rows = await database.fetch(
        f"""
        SELECT id, left(body, 100) AS head
        FROM event
        WHERE id > $1 AND id < {_IDS_BEFORE}
        ORDER BY id
        LIMIT $3
        """,
        after,
        settled_s,
        limit,
    )
    return _find_stale(rows, database.payer_sealing, "head")


def _find_stale(rows: Sequence[Row], sealing: PayerSealing, *columns: str) -> ScanResult:
    stale_ids = [
        row["id"]
        for row in rows
        if not all(sealing.is_as_written(row[column]) for column in columns)
    ]
    return ScanResult(rows[-1]["id"] if rows else None, stale_ids)


async def seal_payments(tx: Tx, payment_ids: Sequence[UUID]) -> list[UUID]:
    """Seal stale values with the current key; return the payments that are up to date.

    A payment that cannot be decrypted is logged and left unchanged.
    """
    rows = await tx.fetch(
        """
        SELECT id, payer_email, metadata
        FROM payment
        WHERE id = ANY($1::uuid[])
        ORDER BY id
        LIMIT 10000
        FOR NO KEY UPDATE
        """,
        payment_ids,
    )
    resealed = list(_reseal("payment", rows, partial(_reseal_payment, tx.payer_sealing)))
    await tx.fetch(
        """
        UPDATE payment p
        SET payer_email = n.payer_email, metadata = n.metadata
        FROM unnest($1::uuid[], $2::text[], $3::json[]) AS n (id, payer_email, metadata)
        WHERE p.id = n.id
        """,
        [payment_id for payment_id, _ in resealed],
        [email for _, (email, _) in resealed],
        [metadata for _, (_, metadata) in resealed],
    )
    return [payment_id for payment_id, _ in resealed]


async def seal_events(tx: Tx, event_ids: Sequence[UUID]) -> list[UUID]:
    """Seal stale event bodies, as `seal_payments` does for payments."""
    rows = await tx.fetch(
        """
        SELECT id, body
        FROM event
        WHERE id = ANY($1::uuid[])
        ORDER BY id
        LIMIT 10000
        FOR NO KEY UPDATE
        """,
        event_ids,
    )
    resealed = list(_reseal("event", rows, partial(_reseal_body, tx.payer_sealing)))
    await tx.fetch(
        """
        UPDATE event e
        SET body = n.body
        FROM unnest($1::uuid[], $2::text[]) AS n (id, body)
        WHERE e.id = n.id
        """,
        [event_id for event_id, _ in resealed],
        [body for _, body in resealed],
    )
    return [event_id for event_id, _ in resealed]


def _reseal(
    table: str, rows: Sequence[Row], reseal_row: Callable[[Row], _Resealed]
) -> Iterator[tuple[UUID, _Resealed]]:
    for row in rows:
        try:
            resealed = reseal_row(row)
        except EncryptionKeyError as error:
            report_unreadable(table, row["id"], error)
        else:
            yield row["id"], resealed


def _reseal_payment(sealing: PayerSealing, row: Row) -> tuple[str | None, str]:
    payment_id, email, metadata = row["id"], row["payer_email"], row["metadata"]
    if not sealing.is_as_written(email):
        email = sealing.with_sealing().email_to_store(payment_id, sealing.email(payment_id, email))
    if not sealing.is_as_written(metadata):
        plain = sealing.metadata(payment_id, metadata)
        metadata = sealing.with_sealing().metadata_to_store(payment_id, plain)
    return email, metadata


def _reseal_body(sealing: PayerSealing, row: Row) -> str:
    event_id, body = row["id"], row["body"]
    if sealing.is_as_written(body):
        return body
    return sealing.with_sealing().body_to_store(event_id, sealing.body(event_id, body))
