"""The outbox of unsent emails. An email is deleted once it has been sent or abandoned."""

from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from payintent.db.database import Executor, Row, Tx
from payintent.db.lists import build
from payintent.mail.message import RETENTION_DAYS, MailKind
from payintent.runtime.encryption import Encryption, make_mail_context


@dataclass(frozen=True, slots=True, kw_only=True)
class MailRecord:
    """An unsent email.

    Receipts and emails about refunds are composed from their payment or refund when they are sent.
    The content of other emails is stored encrypted.
    """

    id: UUID
    kind: MailKind
    payment_id: UUID | None
    refund_id: UUID | None
    sealed: bytes | None = field(repr=False)
    attempts: int  # includes the current attempt


async def claim_due(database: Executor, limit: int, lease_s: int) -> list[MailRecord]:
    """Lease due emails for `lease_s` seconds, most overdue first, and count the attempts."""
    rows = await database.fetch(
        """
        UPDATE mail
        SET attempts = attempts + 1, next_at = clock() + make_interval(secs => $2)
        WHERE id IN (
            SELECT id
            FROM mail
            WHERE next_at <= clock()
            ORDER BY next_at
            LIMIT $1
            FOR UPDATE SKIP LOCKED
        )
        RETURNING id, kind, payment_id, refund_id, sealed, attempts
        """,
        limit,
        lease_s,
    )
    return [_to_record(row) for row in rows]


async def schedule_retry(database: Executor, mail_id: UUID, delay_s: int) -> None:
    await database.fetch(
        "UPDATE mail SET next_at = clock() + make_interval(secs => $2) WHERE id = $1",
        mail_id,
        delay_s,
    )


async def release(database: Executor, record: MailRecord) -> None:
    """End the lease of an email that was not sent, unless it has been claimed again."""
    await database.fetch(
        """
        UPDATE mail SET attempts = attempts - 1, next_at = clock()
        WHERE id = $1 AND attempts = $2
        """,
        record.id,
        record.attempts,
    )


async def delete(database: Executor, mail_id: UUID) -> None:
    await database.fetch("DELETE FROM mail WHERE id = $1", mail_id)


async def delete_old_mail(database: Executor, limit: int) -> int:
    """Delete emails older than `RETENTION_DAYS`; return how many emails were deleted."""
    rows = await database.fetch(
        """
        DELETE FROM mail
        WHERE id IN (
            SELECT id
            FROM mail
            WHERE created_at < clock() - make_interval(days => $1)
            ORDER BY created_at
            LIMIT $2
            FOR UPDATE SKIP LOCKED
        )
        RETURNING id
        """,
        RETENTION_DAYS,
        limit,
    )
    return len(rows)


async def get_oldest_age_s(database: Executor) -> float:
    """Return the age of the oldest unsent email in seconds, or 0 if there is none."""
    return await database.value(
        "SELECT greatest(0, extract(epoch FROM clock() - min(created_at)))::float8 FROM mail"
    )


async def lock_sealed_after(tx: Tx, after: UUID, limit: int) -> list[MailRecord]:
    """Lock and return a batch of emails with encrypted content, in id order."""
    rows = await tx.fetch(
        """
        SELECT id, kind, payment_id, refund_id, sealed, attempts
        FROM mail
        WHERE id > $1 AND sealed IS NOT NULL
        ORDER BY id
        LIMIT $2
        FOR NO KEY UPDATE
        """,
        after,
        limit,
    )
    return [_to_record(row) for row in rows]


async def replace_sealed(tx: Tx, mail_id: UUID, sealed: bytes) -> None:
    await tx.fetch("UPDATE mail SET sealed = $2 WHERE id = $1", mail_id, sealed)


def _to_record(row: Row) -> MailRecord:
    return build(MailRecord, row, kind=MailKind(row["kind"]))


async def add_mail(
    tx: Tx, encryption: Encryption, mail_id: UUID, kind: MailKind, content: msgspec.Struct
) -> bool:
    """Store an email, to be sent once the transaction has committed.

    Returns False if an unsent email has the same id.

    `content` is a `Mail`, or the content from which an email of this kind is composed.
    """
    sealed = encryption.encrypt(msgspec.json.encode(content), make_mail_context(mail_id))
    row = await tx.row(
        """
        INSERT INTO mail (id, kind, sealed)
        VALUES ($1, $2, $3)
        ON CONFLICT (id) DO NOTHING
        RETURNING id
        """,
        mail_id,
        kind,
        sealed,
    )
    return row is not None
