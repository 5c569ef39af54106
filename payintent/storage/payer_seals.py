"""Values of payers that are not as they would be stored now: plain ones, and another key's."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import LiteralString, TypeVar
from uuid import UUID

from payintent.encryption import EncryptionKeyError
from payintent.storage.database import Executor, Row, Tx
from payintent.storage.payer_sealing import PayerSealing, note_unreadable

_Written = TypeVar("_Written")

#: Each index holds what is sealed by its key's name; `$1` is that of the first one.
_OF_OTHER_KEYS: LiteralString = """
    SELECT id FROM {table}
    WHERE {sealed} AND split_part({text}, ':', 2) < $1
    UNION ALL
    SELECT id FROM {table}
    WHERE {sealed} AND split_part({text}, ':', 2) > $1
    LIMIT $2
"""
_OTHER_EMAILS: LiteralString = (
    _OF_OTHER_KEYS.replace("{table}", "payment")
    .replace("{sealed}", "starts_with(payer_email, 'sealed:')")
    .replace("{text}", "payer_email")
)
_OTHER_METADATA: LiteralString = (
    _OF_OTHER_KEYS.replace("{table}", "payment")
    .replace("{sealed}", "json_typeof(metadata) = 'string'")
    .replace("{text}", "metadata #>> '{}'")
)
_OTHER_BODIES: LiteralString = (
    _OF_OTHER_KEYS.replace("{table}", "event")
    .replace("{sealed}", "starts_with(body, 'sealed:')")
    .replace("{text}", "body")
)
#: The id before all those of the last `$2` seconds: ids have the order of their time.
_IDS_BEFORE: LiteralString = """(lpad(to_hex((extract(epoch FROM clock()
    - $2 * interval '1 second') * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid"""
_COUNT: LiteralString = "SELECT count(*) AS n FROM ("


@dataclass(frozen=True, slots=True)
class Walked:
    """How far a walk came, and which rows on its way are not as they would be stored now."""

    last: UUID | None  # None: there was no further row
    ids: Sequence[UUID]


async def list_payments_of_other_keys(database: Executor, limit: int) -> list[UUID]:
    """List payments with a value that another key than the first one has sealed."""
    writer = database.payer_sealing.writer
    emails = await database.fetch(_OTHER_EMAILS, writer, limit)
    metadata = await database.fetch(_OTHER_METADATA, writer, limit)
    return sorted({row["id"] for row in (*emails, *metadata)})[:limit]


async def list_events_of_other_keys(database: Executor, limit: int) -> list[UUID]:
    """List events whose body another key than the first one has sealed."""
    rows = await database.fetch(_OTHER_BODIES, database.payer_sealing.writer, limit)
    return sorted(row["id"] for row in rows)


async def count_of_other_keys(database: Executor, limit: int) -> int:
    """Count the values that another key than the first one has sealed, up to a limit of each."""
    writer = database.payer_sealing.writer
    emails = await database.row(_COUNT + _OTHER_EMAILS + ") due", writer, limit)
    metadata = await database.row(_COUNT + _OTHER_METADATA + ") due", writer, limit)
    bodies = await database.row(_COUNT + _OTHER_BODIES + ") due", writer, limit)
    return sum(row["n"] for row in (emails, metadata, bodies) if row)


async def find_sealing_keys(database: Executor, names: Sequence[str]) -> list[str]:
    """Return those of these keys that have sealed a value that is still there."""
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


async def walk_payments(database: Executor, after: UUID, settled_s: float, limit: int) -> Walked:
    """Look at payments in the order of their ids, up to those of the last `settled_s`."""
    rows = await database.fetch(
        """
        SELECT id, payer_email, metadata
        FROM payment
        WHERE id > $1 AND id < """
        + _IDS_BEFORE
        + """
        ORDER BY id
        LIMIT $3
        """,
        after,
        settled_s,
        limit,
    )
    sealing = database.payer_sealing
    stale = [
        row["id"]
        for row in rows
        if not (
            sealing.is_as_written(row["payer_email"]) and sealing.is_as_written(row["metadata"])
        )
    ]
    return Walked(rows[-1]["id"] if rows else None, stale)


async def walk_events(database: Executor, after: UUID, settled_s: float, limit: int) -> Walked:
    """Look at events in the order of their ids, up to those of the last `settled_s`."""
    rows = await database.fetch(
        """
        SELECT id, left(body, 100) AS head
        FROM event
        WHERE id > $1 AND id < """
        + _IDS_BEFORE
        + """
        ORDER BY id
        LIMIT $3
        """,
        after,
        settled_s,
        limit,
    )
    sealing = database.payer_sealing
    stale = [row["id"] for row in rows if not sealing.is_as_written(row["head"])]
    return Walked(rows[-1]["id"] if rows else None, stale)


async def seal_payments(tx: Tx, payment_ids: Sequence[UUID]) -> list[UUID]:
    """Seal what is not as it would be stored now; returns which payments are as it is now.

    A payment that does not open stays as it is, and the log names it.
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
    anew = list(_readable("payment", rows, partial(_payment_anew, tx.payer_sealing)))
    await tx.fetch(
        """
        UPDATE payment p
        SET payer_email = n.payer_email, metadata = n.metadata
        FROM unnest($1::uuid[], $2::text[], $3::json[]) AS n (id, payer_email, metadata)
        WHERE p.id = n.id
        """,
        [payment_id for payment_id, _ in anew],
        [email for _, (email, _) in anew],
        [metadata for _, (_, metadata) in anew],
    )
    return [payment_id for payment_id, _ in anew]


async def seal_events(tx: Tx, event_ids: Sequence[UUID]) -> list[UUID]:
    """Seal the bodies that are not as they would be stored now, as `seal_payments` does."""
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
    anew = list(_readable("event", rows, partial(_body_anew, tx.payer_sealing)))
    await tx.fetch(
        """
        UPDATE event e
        SET body = n.body
        FROM unnest($1::uuid[], $2::text[]) AS n (id, body)
        WHERE e.id = n.id
        """,
        [event_id for event_id, _ in anew],
        [body for _, body in anew],
    )
    return [event_id for event_id, _ in anew]


def _readable(
    table: str, rows: Sequence[Row], write_anew: Callable[[Row], _Written]
) -> Iterator[tuple[UUID, _Written]]:
    for row in rows:
        try:
            written = write_anew(row)
        except EncryptionKeyError as error:
            note_unreadable(table, row["id"], error)
        else:
            yield row["id"], written


def _payment_anew(sealing: PayerSealing, row: Row) -> tuple[str | None, str]:
    payment_id, email, metadata = row["id"], row["payer_email"], row["metadata"]
    if not sealing.is_as_written(email):
        email = sealing.always().email_to_store(payment_id, sealing.email(payment_id, email))
    if not sealing.is_as_written(metadata):
        opened = sealing.metadata(payment_id, metadata)
        metadata = sealing.always().metadata_to_store(payment_id, opened)
    return email, metadata


def _body_anew(sealing: PayerSealing, row: Row) -> str:
    event_id, body = row["id"], row["body"]
    if sealing.is_as_written(body):
        return body
    return sealing.always().body_to_store(event_id, sealing.body(event_id, body))
