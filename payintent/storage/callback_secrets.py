"""The secrets that webhooks are signed with (table `callback_secret`), encrypted."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from payintent.storage.database import Executor, Tx


@dataclass(frozen=True, slots=True)
class CallbackSecretRecord:
    """An encrypted callback secret as it is stored."""

    id: UUID
    sealed: bytes


async def add_secret(tx: Tx, secret_id: UUID, merchant_id: int, sealed: bytes) -> None:
    """Store a new encrypted callback secret."""
    await tx.fetch(
        "INSERT INTO callback_secret (id, merchant_id, sealed) VALUES ($1, $2, $3)",
        secret_id,
        merchant_id,
        sealed,
    )


async def retire_secrets(tx: Tx, merchant_id: int, overlap_s: int) -> None:
    """Let the present secrets expire after an overlap, so that receivers can change over."""
    await tx.fetch(
        """
        UPDATE callback_secret
        SET expires_at = clock() + $2 * interval '1 second'
        WHERE merchant_id = $1
            AND coalesce(expires_at, 'infinity') > clock() + $2 * interval '1 second'
        """,
        merchant_id,
        overlap_s,
    )


async def list_secrets(
    database: Executor, merchant_id: int, limit: int
) -> Sequence[CallbackSecretRecord]:
    """List the secrets to sign with, newest first."""
    rows = await database.fetch(
        """
        SELECT id, sealed
        FROM callback_secret
        WHERE merchant_id = $1 AND coalesce(expires_at, 'infinity') > clock()
        ORDER BY created_at DESC, id DESC
        LIMIT $2
        """,
        merchant_id,
        limit,
    )
    return [CallbackSecretRecord(row["id"], row["sealed"]) for row in rows]
