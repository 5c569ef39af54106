"""Members of merchants (tables `member`, `member_link`, `member_passkey`)."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from payintent.domain.member import LINK_HOURS, MemberRole
from payintent.storage.database import Executor, Row, Tx

_PASSKEYS_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMember:
    """A member that is being invited."""

    id: UUID
    merchant_id: int
    email: str
    role: MemberRole
    invited_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """A member as operators see it."""

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
    """A passkey of a member: its public half."""

    id: UUID
    member_id: UUID
    credential_id: bytes
    public_key: bytes = field(repr=False)
    sign_count: int
    created_at: datetime
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PasskeyUse:
    """What a successful check of a passkey says of it."""

    credential_id: bytes
    sign_count: int
    challenged_at: datetime  # when its challenge was made


async def add(tx: Tx, new: NewMember) -> bool:
    """Store a new member; False where the merchant has a member of this e-mail address."""
    row = await tx.row(
        """
        INSERT INTO member (id, merchant_id, email, role, invited_by)
        VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT DO NOTHING
        RETURNING id
        """,
        new.id,
        new.merchant_id,
        new.email,
        new.role,
        new.invited_by,
    )
    return row is not None


async def set_link(tx: Tx, member_id: UUID, digest: bytes) -> datetime:
    """Store the digest of a member's link in place of an earlier one; returns its end."""
    row = await tx.row(
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
    assert row is not None  # noqa: S101 - inserted or updated
    return row["expires_at"]


async def use_link(tx: Tx, digest: bytes) -> UUID | None:
    """Use a link up and return its member; None where it was used, replaced or has lapsed."""
    row = await tx.row(
        """
        DELETE FROM member_link
        WHERE digest = $1
        RETURNING member_id, expires_at > clock() AS works
        """,
        digest,
    )
    return row["member_id"] if row and row["works"] else None


_SELECT = """
    SELECT m.id, m.merchant_id, m.email, m.role, m.invited_by, m.created_at, m.last_signed_in_at,
        (SELECT count(*) FROM member_passkey WHERE member_id = m.id) AS passkeys
    FROM member m
"""


async def find_by_email(database: Executor, merchant_id: int, email: str) -> MemberRecord | None:
    """Find a merchant's member by e-mail address, in capital letters or not."""
    row = await database.row(
        _SELECT + "WHERE m.merchant_id = $1 AND lower(m.email) = lower($2)", merchant_id, email
    )
    return _member(row) if row else None


async def list_members(database: Executor, merchant_id: int, limit: int) -> list[MemberRecord]:
    """List a merchant's members, newest first."""
    rows = await database.fetch(
        _SELECT + "WHERE m.merchant_id = $1 ORDER BY m.id DESC LIMIT $2", merchant_id, limit
    )
    return [_member(row) for row in rows]


async def remove(tx: Tx, merchant_id: int, email: str) -> bool:
    """Remove a member with its link, passkeys and sessions; False where there is none."""
    row = await tx.row(
        """
        DELETE FROM member
        WHERE merchant_id = $1 AND lower(email) = lower($2)
        RETURNING id
        """,
        merchant_id,
        email,
    )
    return row is not None


async def list_passkeys(database: Executor, member_id: UUID) -> list[Passkey]:
    """List a member's passkeys, oldest first."""
    rows = await database.fetch(
        _PASSKEY + "WHERE member_id = $1 ORDER BY id LIMIT $2", member_id, _PASSKEYS_MAX
    )
    return [Passkey(**row) for row in rows]


async def find_passkey(database: Executor, credential_id: bytes) -> Passkey | None:
    """Find a passkey by the id that its device gave it."""
    row = await database.row(_PASSKEY + "WHERE credential_id = $1", credential_id)
    return Passkey(**row) if row else None


async def add_passkey(
    tx: Tx, passkey_id: UUID, member_id: UUID, public_key: bytes, use: PasskeyUse
) -> bool:
    """Store a member's passkey; False where it is stored, or the member has as many as may be.

    A challenge is of no use twice: what was registered with it is stored.
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
    """Record a use and return the member; None for a challenge or a count that was used before."""
    row = await tx.row(
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
    return row["member_id"] if row else None


async def remove_passkey(tx: Tx, member_id: UUID, passkey_id: UUID) -> bool:
    """Remove a passkey of a member; False where the member has none of this id."""
    row = await tx.row(
        "DELETE FROM member_passkey WHERE id = $2 AND member_id = $1 RETURNING id",
        member_id,
        passkey_id,
    )
    return row is not None


_PASSKEY = """
    SELECT id, member_id, credential_id, public_key, sign_count, created_at, last_used_at
    FROM member_passkey
"""


def _member(row: Row) -> MemberRecord:
    fields: dict[str, Any] = dict(row) | {"role": MemberRole(row["role"])}
    return MemberRecord(**fields)
