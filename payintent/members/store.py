"""Store members, their sign-in links and their passkeys."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from payintent.db.database import Executor, Row, Tx
from payintent.db.lists import build
from payintent.members.model import LINK_HOURS, MemberRole

_PASSKEYS_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    id: UUID
    merchant_id: int
    email: str
    role: MemberRole
    passkeys: int
    invited_by: str
    created_at: datetime
    last_signed_in_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Passkey:
    id: UUID
    member_id: UUID
    credential_id: bytes
    public_key: bytes = field(repr=False)
    sign_count: int
    created_at: datetime
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PasskeyUse:
    """A verified use of a passkey."""

    credential_id: bytes
    sign_count: int
    challenged_at: datetime  # when the challenge was created


async def add(tx: Tx, merchant_id: int, email: str, role: MemberRole, invited_by: str) -> None:
    """Store a member, unless the merchant already has a member with this address."""
    await tx.fetch(
        """
        INSERT INTO member (id, merchant_id, email, role, invited_by)
        VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT DO NOTHING
        """,
        tx.id_generator.new_id(),
        merchant_id,
        email,
        role,
        invited_by,
    )


async def set_link(tx: Tx, member_id: UUID, digest: bytes) -> datetime:
    """Set a member's sign-in link, replacing the previous link, and return its expiry."""
    return await tx.value(
        """
        INSERT INTO member_link (member_id, digest, expires_at)
        VALUES ($1, $2, clock() + make_interval(hours => $3))
        ON CONFLICT (member_id) DO UPDATE
        SET digest = excluded.digest, expires_at = excluded.expires_at
        RETURNING expires_at
        """,
        member_id,
        digest,
        LINK_HOURS,
    )


async def consume_link(tx: Tx, digest: bytes) -> UUID | None:
    """Delete a link and return its member; None if it was used or replaced, or has expired."""
    row = await tx.row(
        """
        DELETE FROM member_link
        WHERE digest = $1
        RETURNING member_id, expires_at > clock() AS is_valid
        """,
        digest,
    )
    return row["member_id"] if row and row["is_valid"] else None


_SELECT_MEMBER = """
    SELECT m.id, m.merchant_id, m.email, m.role, m.invited_by, m.created_at, m.last_signed_in_at,
        (SELECT count(*) FROM member_passkey WHERE member_id = m.id) AS passkeys
    FROM member m
"""


async def find_by_email(database: Executor, merchant_id: int, email: str) -> MemberRecord | None:
    """Find a member by email address, ignoring case."""
    row = await database.row(
        _SELECT_MEMBER + "WHERE m.merchant_id = $1 AND lower(m.email) = lower($2)",
        merchant_id,
        email,
    )
    return _to_record(row) if row else None


async def list_members(database: Executor, merchant_id: int, limit: int) -> list[MemberRecord]:
    rows = await database.fetch(
        _SELECT_MEMBER + "WHERE m.merchant_id = $1 ORDER BY m.id DESC LIMIT $2", merchant_id, limit
    )
    return [_to_record(row) for row in rows]


async def remove(tx: Tx, merchant_id: int, email: str) -> bool:
    """Remove a member and all sign-in data; return False if the member does not exist.

    A sign-in locks the passkey or link before the member, so they are removed in this order.
    """
    member = await find_by_email(tx, merchant_id, email)
    if member is None:
        return False
    await tx.fetch("DELETE FROM member_passkey WHERE member_id = $1", member.id)
    await tx.fetch("DELETE FROM member_link WHERE member_id = $1", member.id)
    row = await tx.row("DELETE FROM member WHERE id = $1 RETURNING id", member.id)
    return row is not None


async def list_passkeys(database: Executor, member_id: UUID) -> list[Passkey]:
    rows = await database.fetch(
        _SELECT_PASSKEY + "WHERE member_id = $1 ORDER BY id LIMIT $2", member_id, _PASSKEYS_MAX
    )
    return [Passkey(**row) for row in rows]


async def find_passkey(database: Executor, credential_id: bytes) -> Passkey | None:
    """Find a passkey by the id that its authenticator assigned."""
    row = await database.row(_SELECT_PASSKEY + "WHERE credential_id = $1", credential_id)
    return Passkey(**row) if row else None


async def add_passkey(
    tx: Tx, passkey_id: UUID, member_id: UUID, public_key: bytes, use: PasskeyUse
) -> bool:
    """Store a passkey; return False if it already exists or the member has too many passkeys.

    The challenge time is stored so that each challenge is accepted only once.
    """
    row = await tx.row(
        """
        WITH owner AS (
            SELECT id FROM member WHERE id = $2 FOR UPDATE
        )
        INSERT INTO member_passkey
            (id, member_id, credential_id, public_key, sign_count, challenged_at)
        SELECT $1, o.id, $3, $4, $5, $6
        FROM owner o
        WHERE (SELECT count(*) FROM member_passkey WHERE member_id = o.id) < $7
            AND NOT EXISTS (SELECT FROM member_passkey
                WHERE member_id = o.id AND challenged_at >= $6)
        ON CONFLICT DO NOTHING
        RETURNING id
        """,
        passkey_id,
        member_id,
        use.credential_id,
        public_key,
        use.sign_count,
        use.challenged_at,
        _PASSKEYS_MAX,
    )
    return row is not None


async def use_passkey(tx: Tx, use: PasskeyUse) -> UUID | None:
    """Record a use and return the member; None if the challenge or sign count is not newer."""
    return await tx.value(
        """
        UPDATE member_passkey
        SET sign_count = $2, challenged_at = $3, last_used_at = clock()
        WHERE credential_id = $1 AND challenged_at < $3
            AND (sign_count < $2 OR (sign_count = 0 AND $2 = 0))
        RETURNING member_id
        """,
        use.credential_id,
        use.sign_count,
        use.challenged_at,
    )


async def remove_passkey(tx: Tx, member_id: UUID, passkey_id: UUID) -> bool:
    row = await tx.row(
        "DELETE FROM member_passkey WHERE id = $2 AND member_id = $1 RETURNING id",
        member_id,
        passkey_id,
    )
    return row is not None


_SELECT_PASSKEY = """
    SELECT id, member_id, credential_id, public_key, sign_count, created_at, last_used_at
    FROM member_passkey
"""


def _to_record(row: Row) -> MemberRecord:
    return build(MemberRecord, row, role=MemberRole(row["role"]))
