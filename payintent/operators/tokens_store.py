"""Operator tokens, stored as digests. Names are never reused."""

from dataclasses import dataclass, field
from datetime import datetime

from payintent.core.access import Role
from payintent.db.database import Executor, Row, Tx
from payintent.db.lists import build


@dataclass(frozen=True, slots=True)
class AuthenticatedOperator:
    """The operator that a token belongs to, and the digest of the token."""

    name: str
    role: Role
    digest: bytes = field(repr=False)
    was_used_recently: bool  # whether a use was recorded within the last minute


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTokenRecord:
    public_id: str
    name: str
    role: Role
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


_COLUMNS = "public_id, name, role, created_at, expires_at, last_used_at, revoked_at"
_SELECT = f"SELECT {_COLUMNS} FROM operator_token "


async def add(
    tx: Tx, public_id: str, digest: bytes, *, name: str, role: Role, days: int
) -> datetime | None:
    """Store a new token and return its expiry, or None if the name has been used before."""
    return await tx.value(
        """
        INSERT INTO operator_token (public_id, name, role, digest, expires_at)
        VALUES ($1, $2, $3, $4, clock() + make_interval(days => $5))
        ON CONFLICT DO NOTHING
        RETURNING expires_at
        """,
        public_id,
        name,
        role,
        digest,
        days,
    )


async def lock_table(tx: Tx) -> None:
    """Prevent other transactions from issuing tokens until this transaction ends."""
    await tx.fetch("LOCK TABLE operator_token IN SHARE ROW EXCLUSIVE MODE")


async def count_tokens(tx: Tx) -> int:
    """Count all tokens, including revoked and expired tokens."""
    return await tx.value("SELECT count(*) FROM operator_token")


async def may_read_tokens(database: Executor) -> bool:
    """Return whether the connection's database role may read tokens."""
    return await database.value("SELECT has_table_privilege('operator_token', 'SELECT')")


async def count_valid_tokens(database: Executor, role: Role) -> int:
    return await database.value(
        """
        SELECT count(*)
        FROM operator_token
        WHERE role = $1 AND revoked_at IS NULL AND expires_at > clock()
        """,
        role,
    )


async def find_by_public_id(database: Executor, public_id: str) -> AuthenticatedOperator | None:
    """Return the operator that a token belongs to; None if it is unknown, revoked or expired."""
    row = await database.row(
        """
        SELECT name, role, digest,
            coalesce(last_used_at > clock() - interval '1 minute', false) AS was_used_recently
        FROM operator_token
        WHERE public_id = $1 AND revoked_at IS NULL AND expires_at > clock()
        """,
        public_id,
    )
    if row is None:
        return None
    return build(AuthenticatedOperator, row, role=Role(row["role"]))


async def record_use(database: Executor, public_id: str) -> None:
    await database.fetch(
        "UPDATE operator_token SET last_used_at = clock() WHERE public_id = $1", public_id
    )


async def find_role(database: Executor, name: str) -> Role | None:
    """Return the role of the valid token or identity with this name."""
    row = await database.row(
        """
        SELECT role
        FROM operator_token
        WHERE lower(name) = lower($1) AND revoked_at IS NULL AND expires_at > clock()
        UNION ALL
        SELECT role
        FROM operator_identity
        WHERE lower(name) = lower($1) AND blocked_at IS NULL AND expires_at > clock()
        """,
        name,
    )
    return Role(row["role"]) if row else None


async def is_name_taken(database: Executor, name: str) -> bool:
    """Return whether a token has ever had this name."""
    row = await database.row("SELECT FROM operator_token WHERE lower(name) = lower($1)", name)
    return row is not None


async def lock(tx: Tx, public_id: str) -> OperatorTokenRecord | None:
    row = await tx.row(_SELECT + "WHERE public_id = $1 FOR UPDATE", public_id)
    return _to_record(row) if row else None


async def lock_by_name(tx: Tx, name: str) -> OperatorTokenRecord | None:
    row = await tx.row(_SELECT + "WHERE lower(name) = lower($1) FOR UPDATE", name)
    return _to_record(row) if row else None


async def get(database: Executor, public_id: str) -> OperatorTokenRecord | None:
    row = await database.row(_SELECT + "WHERE public_id = $1", public_id)
    return _to_record(row) if row else None


async def list_tokens(database: Executor, limit: int) -> list[OperatorTokenRecord]:
    """List tokens, newest first."""
    rows = await database.fetch(_SELECT + "ORDER BY created_at DESC, public_id LIMIT $1", limit)
    return [_to_record(row) for row in rows]


async def set_role(tx: Tx, public_id: str, role: Role) -> OperatorTokenRecord:
    row = await tx.row(
        f"UPDATE operator_token SET role = $2 WHERE public_id = $1 RETURNING {_COLUMNS}",
        public_id,
        role,
    )
    assert row is not None  # noqa: S101 - the token is locked
    return _to_record(row)


async def extend(tx: Tx, public_id: str, days: int) -> OperatorTokenRecord:
    """Set a token to expire `days` days from now. The token must be locked."""
    row = await tx.row(
        f"""
        UPDATE operator_token
        SET expires_at = clock() + make_interval(days => $2)
        WHERE public_id = $1
        RETURNING {_COLUMNS}
        """,
        public_id,
        days,
    )
    assert row is not None  # noqa: S101 - the token is locked
    return _to_record(row)


async def replace(tx: Tx, old_public_id: str, public_id: str, digest: bytes) -> None:
    """Replace a token's secret, but not its name, role or expiry. The token must be locked."""
    await tx.fetch(
        "UPDATE operator_token SET public_id = $2, digest = $3 WHERE public_id = $1",
        old_public_id,
        public_id,
        digest,
    )


async def revoke(tx: Tx, public_id: str) -> OperatorTokenRecord | None:
    """Revoke a token permanently. A repeated call does not change the revocation time."""
    row = await tx.row(
        f"""
        UPDATE operator_token
        SET revoked_at = coalesce(revoked_at, clock())
        WHERE public_id = $1
        RETURNING {_COLUMNS}
        """,
        public_id,
    )
    return _to_record(row) if row else None


def _to_record(row: Row) -> OperatorTokenRecord:
    return build(OperatorTokenRecord, row, role=Role(row["role"]))
