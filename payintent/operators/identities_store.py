"""Operators' OpenID Connect identities, keyed by issuer and subject.

The tables are `operator_identity` and `completed_sign_in`. An identity's name never changes.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.core.access import IDENTITY_HOURS, Role
from payintent.db.database import Executor, Row, Tx
from payintent.db.lists import build


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorIdentityRecord:
    """A stored identity. Its role is valid until `expires_at`, unless the identity is blocked."""

    name: str
    role: Role
    issuer: str
    subject: str
    created_at: datetime
    signed_in_at: datetime
    expires_at: datetime
    blocked_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSignIn:
    """The claims of a sign-in. `name` is used only for an identity's first sign-in."""

    id: UUID
    issuer: str
    subject: str
    name: str
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInResult:
    """An identity after a sign-in. `previous_role` is None for the first sign-in."""

    id: UUID
    name: str
    role: Role
    previous_role: Role | None


_COLUMNS = "name, role, issuer, subject, created_at, signed_in_at, expires_at, blocked_at"
_SELECT = f"SELECT {_COLUMNS} FROM operator_identity "


async def complete_sign_in(tx: Tx, digest: bytes, valid_s: int) -> bool:
    """Mark a sign-in as completed; return False if it was already completed."""
    await tx.fetch(
        """
        DELETE FROM completed_sign_in
        WHERE digest IN (
            SELECT digest
            FROM completed_sign_in
            WHERE expires_at < clock()
            ORDER BY expires_at
            LIMIT 100
            FOR UPDATE SKIP LOCKED
        )
        """
    )
    row = await tx.row(
        """
        INSERT INTO completed_sign_in (digest, expires_at)
        VALUES ($1, clock() + make_interval(secs => $2))
        ON CONFLICT DO NOTHING
        RETURNING digest
        """,
        digest,
        valid_s,
    )
    return row is not None


async def sign_in(tx: Tx, claims: NewSignIn) -> SignInResult | None:
    """Add an identity or update its role; return None if the identity is blocked."""
    previous_row = await tx.row(
        "SELECT role FROM operator_identity WHERE issuer = $1 AND subject = $2 FOR UPDATE",
        claims.issuer,
        claims.subject,
    )
    row = await tx.row(
        """
        INSERT INTO operator_identity AS i (id, issuer, subject, name, role, expires_at)
        VALUES ($1, $2, $3, $4, $5, clock() + make_interval(hours => $6))
        ON CONFLICT (issuer, subject) DO UPDATE
        SET role = excluded.role, signed_in_at = clock(), expires_at = excluded.expires_at
        WHERE i.blocked_at IS NULL
        RETURNING id, name
        """,
        claims.id,
        claims.issuer,
        claims.subject,
        claims.name,
        claims.role,
        IDENTITY_HOURS,
    )
    if row is None:
        return None
    previous_role = Role(previous_row["role"]) if previous_row else None
    return SignInResult(
        id=row["id"], name=row["name"], role=claims.role, previous_role=previous_role
    )


async def end_role(tx: Tx, issuer: str, subject: str) -> None:
    """End an identity's role and sessions, because its provider no longer grants it a role."""
    await tx.fetch(
        """
        WITH ended AS (
            UPDATE operator_identity
            SET expires_at = least(expires_at, clock())
            WHERE issuer = $1 AND subject = $2
            RETURNING id
        )
        UPDATE console_session
        SET revoked_at = clock()
        WHERE identity_id IN (SELECT id FROM ended) AND revoked_at IS NULL
        """,
        issuer,
        subject,
    )


async def list_identities(database: Executor, limit: int) -> list[OperatorIdentityRecord]:
    """List identities, most recent sign-in first."""
    rows = await database.fetch(_SELECT + "ORDER BY signed_in_at DESC, name LIMIT $1", limit)
    return [_to_record(row) for row in rows]


async def get(database: Executor, name: str) -> OperatorIdentityRecord | None:
    row = await database.row(_SELECT + "WHERE lower(name) = lower($1)", name)
    return _to_record(row) if row else None


async def block(tx: Tx, name: str) -> OperatorIdentityRecord | None:
    """Block an identity and end its sessions. A repeated call does not change the block time."""
    row = await tx.row(
        f"""
        WITH blocked AS (
            UPDATE operator_identity
            SET blocked_at = coalesce(blocked_at, clock())
            WHERE lower(name) = lower($1)
            RETURNING id, {_COLUMNS}
        ), ended AS (
            UPDATE console_session
            SET revoked_at = clock()
            WHERE identity_id IN (SELECT id FROM blocked) AND revoked_at IS NULL
        )
        SELECT {_COLUMNS} FROM blocked
        """,
        name,
    )
    return _to_record(row) if row else None


async def unblock(tx: Tx, name: str) -> OperatorIdentityRecord | None:
    row = await tx.row(
        f"""
        UPDATE operator_identity
        SET blocked_at = NULL
        WHERE lower(name) = lower($1)
        RETURNING {_COLUMNS}
        """,
        name,
    )
    return _to_record(row) if row else None


def _to_record(row: Row) -> OperatorIdentityRecord:
    return build(OperatorIdentityRecord, row, role=Role(row["role"]))
