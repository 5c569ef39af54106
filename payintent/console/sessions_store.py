"""Storage of console sessions in the table `console_session`.

Sessions are valid for 12 hours. Only digests of their secrets are stored.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from payintent.core.access import Role
from payintent.db.database import Executor, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHolder:
    """The owner of a session, either an operator token or an OpenID Connect identity."""

    token_public_id: str | None = None
    identity_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSessionRecord:
    """A valid session and its operator."""

    id: UUID
    holder: SessionHolder
    name: str
    role: Role
    digest: bytes = field(repr=False)
    previous_digest: bytes | None = field(repr=False)
    is_previous_valid: bool  # for one minute after rotation
    is_rotation_due: bool
    used_recently: bool  # the last use was recorded less than a minute ago


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSessionSummary:
    id: UUID
    address: str | None
    browser: str
    created_at: datetime
    last_used_at: datetime
    expires_at: datetime


async def add(
    tx: Tx,
    session_id: UUID,
    holder: SessionHolder,
    *,
    digest: bytes,
    address: str | None,
    browser: str,
) -> None:
    """Add a session, which expires no later than its token or identity."""
    await tx.fetch(
        """
        INSERT INTO console_session
            (id, token_public_id, identity_id, digest, address, browser, expires_at)
        SELECT $1, holder.public_id, holder.id, $4, $5, $6,
            least(clock() + interval '12 hours', holder.expires_at)
        FROM (
            SELECT public_id, NULL::uuid AS id, expires_at FROM operator_token WHERE public_id = $2
            UNION ALL
            SELECT NULL, id, expires_at FROM operator_identity WHERE id = $3
        ) AS holder
        """,
        session_id,
        holder.token_public_id,
        holder.identity_id,
        digest,
        address,
        browser,
    )


async def find(database: Executor, session_id: UUID) -> ConsoleSessionRecord | None:
    """Return a session; None if the session, its token or its identity is not valid."""
    row = await database.row(
        """
        SELECT s.id, s.token_public_id, s.identity_id, coalesce(t.name, i.name) AS name,
            coalesce(t.role, i.role) AS role, s.digest,
            s.digest_before AS previous_digest,
            s.rotated_at > clock() - interval '1 minute' AS is_previous_valid,
            s.rotated_at < clock() - interval '15 minutes' AS is_rotation_due,
            s.last_used_at > clock() - interval '1 minute' AS used_recently
        FROM console_session s
            LEFT JOIN operator_token t ON t.public_id = s.token_public_id
                AND t.revoked_at IS NULL
                AND t.expires_at > clock()
            LEFT JOIN operator_identity i ON i.id = s.identity_id
                AND i.blocked_at IS NULL
                AND i.expires_at > clock()
        WHERE s.id = $1
            AND s.revoked_at IS NULL
            AND s.expires_at > clock()
            AND coalesce(t.name, i.name) IS NOT NULL
        """,
        session_id,
    )
    if row is None:
        return None
    fields: dict[str, Any] = {**row, "role": Role(row["role"])}
    holder = SessionHolder(
        token_public_id=fields.pop("token_public_id"), identity_id=fields.pop("identity_id")
    )
    return ConsoleSessionRecord(holder=holder, **fields)


async def record_use(database: Executor, session_id: UUID, holder: SessionHolder) -> None:
    """Record the use of a session and, if it has one, of its token."""
    await database.fetch(
        """
        WITH used AS (
            UPDATE operator_token
            SET last_used_at = clock()
            WHERE public_id = $2
        )
        UPDATE console_session
        SET last_used_at = clock()
        WHERE id = $1
        """,
        session_id,
        holder.token_public_id,
    )


async def rotate(database: Executor, session_id: UUID, old_digest: bytes, digest: bytes) -> bool:
    """Replace a secret's digest; return False if a concurrent request already replaced it."""
    row = await database.row(
        """
        UPDATE console_session
        SET digest_before = digest, digest = $3, rotated_at = clock()
        WHERE id = $1
            AND digest = $2
            AND revoked_at IS NULL
        RETURNING id
        """,
        session_id,
        old_digest,
        digest,
    )
    return row is not None


async def revoke(database: Executor, session_id: UUID, holder: SessionHolder) -> bool:
    """Revoke one of the holder's sessions; return False if it is not open."""
    row = await database.row(
        """
        UPDATE console_session
        SET revoked_at = clock()
        WHERE id = $1
            AND (token_public_id = $2 OR identity_id = $3)
            AND revoked_at IS NULL
            AND expires_at > clock()
        RETURNING id
        """,
        session_id,
        holder.token_public_id,
        holder.identity_id,
    )
    return row is not None


async def list_open(
    database: Executor, holder: SessionHolder, limit: int
) -> list[ConsoleSessionSummary]:
    """Return the holder's open sessions, newest first."""
    rows = await database.fetch(
        """
        SELECT id, address, browser, created_at, last_used_at, expires_at
        FROM console_session
        WHERE (token_public_id = $1 OR identity_id = $2)
            AND revoked_at IS NULL
            AND expires_at > clock()
        ORDER BY id DESC
        LIMIT $3
        """,
        holder.token_public_id,
        holder.identity_id,
        limit,
    )
    return [ConsoleSessionSummary(**cast("dict[str, Any]", row)) for row in rows]


async def delete_old(tx: Tx, days: int, limit: int) -> None:
    """Delete up to `limit` sessions that expired more than `days` days ago."""
    await tx.fetch(
        """
        DELETE FROM console_session
        WHERE id IN (
            SELECT id
            FROM console_session
            WHERE expires_at < clock() - make_interval(days => $1)
            ORDER BY expires_at
            LIMIT $2
            FOR UPDATE SKIP LOCKED
        )
        """,
        days,
        limit,
    )
