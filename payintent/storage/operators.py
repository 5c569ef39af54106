"""Operators' tokens: named, revocable, kept as digests."""

from dataclasses import dataclass
from datetime import datetime

from payintent.storage.database import Executor, Tx


@dataclass(frozen=True, slots=True)
class Operator:
    """Whose token it is, and what the token's text must digest to."""

    name: str
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token as it is kept: never the token itself."""

    public_id: str
    name: str
    created_at: datetime
    revoked_at: datetime | None


async def add(tx: Tx, public_id: str, name: str, digest: bytes) -> None:
    """Keep the digest of a new token."""
    await tx.fetch(
        "INSERT INTO operator_token (public_id, name, digest) VALUES ($1, $2, $3)",
        public_id,
        name,
        digest,
    )


async def by_public_id(database: Executor, public_id: str) -> Operator | None:
    """Find a token that was not revoked."""
    row = await database.row(
        "SELECT name, digest FROM operator_token WHERE public_id = $1 AND revoked_at IS NULL",
        public_id,
    )
    return Operator(row["name"], row["digest"]) if row else None


async def listed(database: Executor, limit: int) -> list[Token]:
    """List tokens, newest first."""
    rows = await database.fetch(
        """
        SELECT public_id, name, created_at, revoked_at
        FROM operator_token
        ORDER BY created_at DESC, public_id
        LIMIT $1
        """,
        limit,
    )
    return [Token(**row) for row in rows]


async def revoke(tx: Tx, public_id: str) -> Token | None:
    """Revoke a token for good; revoking twice keeps the first time."""
    row = await tx.row(
        """
        UPDATE operator_token
        SET revoked_at = coalesce(revoked_at, clock())
        WHERE public_id = $1
        RETURNING public_id, name, created_at, revoked_at
        """,
        public_id,
    )
    return Token(**row) if row else None
