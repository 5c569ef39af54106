"""Records of encryption keys, and queries for the values that are encrypted with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.db.database import Executor, Tx
from payintent.runtime.encryption import Encryption

_KEYS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionKeyRecord:
    """A key that has been used.

    `mark` is its fingerprint, which distinguishes it from other keys with the same name.
    """

    name: str
    mark: str
    since: datetime
    retired_at: datetime | None


@dataclass(frozen=True, slots=True)
class EncryptedRow:
    id: UUID
    merchant_id: int
    sealed: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedCredentials:
    id: int
    provider: str
    base_url: str
    sealed: bytes


async def get_or_set_pepper_fingerprint(database: Executor, default: str) -> str:
    """Return the fingerprint of the database's pepper; if there is none, store `default`."""
    return await database.value(
        """
        INSERT INTO installation AS i (pepper_mark)
        VALUES ($1)
        ON CONFLICT (only_one) DO UPDATE
        SET pepper_mark = coalesce(i.pepper_mark, excluded.pepper_mark)
        RETURNING pepper_mark
        """,
        default,
    )


async def list_keys(database: Executor) -> list[EncryptionKeyRecord]:
    rows = await database.fetch(
        "SELECT name, mark, since, retired_at FROM ring_key ORDER BY since DESC, name LIMIT $1",
        _KEYS_MAX,
    )
    return [EncryptionKeyRecord(**row) for row in rows]


async def record_writing_key(database: Executor, name: str, mark: str) -> None:
    await database.fetch(
        """
        INSERT INTO ring_key (name, mark)
        VALUES ($1, $2)
        ON CONFLICT (name) DO UPDATE
        SET retired_at = NULL
        """,
        name,
        mark,
    )


async def lock_all_keys(tx: Tx) -> None:
    """Wait for transactions that are encrypting data, and block new ones until this one ends."""
    await tx.fetch("LOCK TABLE ring_key IN EXCLUSIVE MODE")


async def retire_other_keys(tx: Tx, writer: str, keys_in_use: Sequence[str]) -> list[str]:
    """Retire all keys except `writer` and `keys_in_use`; return the names of the retired keys."""
    rows = await tx.fetch(
        """
        UPDATE ring_key
        SET retired_at = clock()
        WHERE name <> $1 AND retired_at IS NULL AND name <> ALL($2::text[])
        RETURNING name
        """,
        writer,
        keys_in_use,
    )
    return [row["name"] for row in rows]


async def lock_callback_secrets_after(tx: Tx, after: UUID, limit: int) -> list[EncryptedRow]:
    rows = await tx.fetch(
        """
        SELECT id, merchant_id, sealed
        FROM callback_secret
        WHERE id > $1
        ORDER BY id
        LIMIT $2
        FOR NO KEY UPDATE
        """,
        after,
        limit,
    )
    return [EncryptedRow(**row) for row in rows]


async def count_callback_secrets_with_old_keys(database: Executor, writer_prefix: bytes) -> int:
    """Count the callback secrets that are not encrypted with the current key."""
    return await database.value(
        """
        SELECT count(*) AS n
        FROM callback_secret
        WHERE substr(sealed, 1, octet_length($1::bytea)) <> $1
        """,
        writer_prefix,
    )


async def lock_accounts_after(tx: Tx, after: int, limit: int) -> list[SealedCredentials]:
    rows = await tx.fetch(
        """
        SELECT id, provider, base_url, sealed
        FROM provider_account
        WHERE id > $1 AND sealed IS NOT NULL
        ORDER BY id
        LIMIT $2
        FOR NO KEY UPDATE
        """,
        after,
        limit,
    )
    return [SealedCredentials(**row) for row in rows]


async def replace_callback_secret(tx: Tx, secret_id: UUID, sealed: bytes) -> None:
    await tx.fetch("UPDATE callback_secret SET sealed = $2 WHERE id = $1", secret_id, sealed)


async def ensure_writing_key(tx: Tx, encryption: Encryption) -> None:
    """Record that the current key is in use. Call before taking any other lock.

    Every transaction that stores a secret must call this, because it prevents the key from being
    marked as retired until the transaction ends.
    """
    name = encryption.current_key_name
    row = await tx.row(
        "SELECT name FROM ring_key WHERE name = $1 AND retired_at IS NULL FOR SHARE", name
    )
    if row is None:
        await record_writing_key(tx, name, encryption.fingerprints[name])
