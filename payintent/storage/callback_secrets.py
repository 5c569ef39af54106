"""The secrets that webhooks are signed with (table `callback_secret`), encrypted."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.storage.database import Executor, Tx


@dataclass(frozen=True, slots=True)
class CallbackSecretRecord:
    """An encrypted callback secret as it is stored."""

    id: UUID
    sealed: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackSecretTimes:
    """When a callback secret was made and until when it signs; never the secret itself."""

    id: UUID
    created_at: datetime
    expires_at: datetime | None  # None: it signs until it is replaced
    signs: bool


async def list_times(database: Executor, merchant_id: int, limit: int) -> list[CallbackSecretTimes]:
    """List when a merchant's secrets were made and expire, newest first."""
    rows = await database.fetch(
        """
        SELECT id, created_at, expires_at, coalesce(expires_at, 'infinity') > clock() AS signs
        FROM callback_secret
        WHERE merchant_id = $1
        ORDER BY created_at DESC, id DESC
        LIMIT $2
        """,
        merchant_id,
        limit,
    )
    return [CallbackSecretTimes(**row) for row in rows]


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
    database: Executor, merchant_ids: Sequence[int], limit: int
) -> dict[int, list[CallbackSecretRecord]]:
    """List the secrets to sign with, at most `limit` of each merchant, newest first."""
    rows = await database.fetch(
        """
        SELECT m.id AS merchant_id, s.id, s.sealed
        FROM unnest($1::bigint[]) AS m (id)
        CROSS JOIN LATERAL (
            SELECT id, sealed, created_at
            FROM callback_secret
            WHERE merchant_id = m.id AND coalesce(expires_at, 'infinity') > clock()
            ORDER BY created_at DESC, id DESC
            LIMIT $2
        ) s
        ORDER BY s.created_at DESC, s.id DESC
        LIMIT 10000
        """,
        merchant_ids,
        limit,
    )
    found: dict[int, list[CallbackSecretRecord]] = {}
    for row in rows:
        secret = CallbackSecretRecord(row["id"], row["sealed"])
        found.setdefault(row["merchant_id"], []).append(secret)
    return found
