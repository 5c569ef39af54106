"""Merchant portal sessions (table `member_session`), identified by cookie digest."""

from dataclasses import dataclass
from uuid import UUID

from payintent.db.database import Executor, Tx
from payintent.db.lists import build
from payintent.members.model import SESSION_HOURS, MemberRole
from payintent.merchants.model import ActivationStatus

_SESSIONS_MAX = 10  # per member, to allow several devices
_ROTATE_AFTER_S = 3_600
#: How long the previous cookie remains valid, for concurrent requests.
_GRACE_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSession:
    """A session, its member, and the side that the member views."""

    id: UUID
    is_rotation_due: bool  # whether the cookie is older than an hour
    member_id: UUID
    merchant_id: int  # the member's merchant
    livemode: bool  # False if the member's merchant is a test merchant
    test_merchant_id: int | None  # equals `merchant_id` for a test merchant
    in_test: bool  # whether the member views the test merchant's data
    merchant_name: str
    activation: ActivationStatus
    email: str
    role: MemberRole

    @property
    def viewed_merchant_id(self) -> int:
        """The merchant whose data the member views."""
        if not self.in_test:
            return self.merchant_id
        assert self.test_merchant_id is not None  # noqa: S101 - `find` sets both
        return self.test_merchant_id


async def add(tx: Tx, session_id: UUID, member_id: UUID, digest: bytes) -> None:
    """Store a new session, and delete the member's oldest sessions above the limit."""
    await tx.fetch("UPDATE member SET last_signed_in_at = clock() WHERE id = $1", member_id)
    await tx.fetch(
        """
        DELETE FROM member_session
        WHERE member_id = $1 AND id NOT IN (
            SELECT id
            FROM member_session
            WHERE member_id = $1 AND expires_at > clock()
            ORDER BY id DESC
            LIMIT $2
        )
        """,
        member_id,
        _SESSIONS_MAX - 1,
    )
    await tx.fetch(
        """
        INSERT INTO member_session (id, member_id, digest, expires_at)
        VALUES ($1, $2, $3, clock() + make_interval(hours => $4))
        """,
        session_id,
        member_id,
        digest,
        SESSION_HOURS,
    )


async def find(database: Executor, digest: bytes) -> MemberSession | None:
    """Find a session by its cookie's digest, or by the previous digest within the grace period."""
    row = await database.row(
        """
        SELECT s.id,
            s.digest = $1 AND s.rotated_at <= clock() - make_interval(secs => $2)
                AS is_rotation_due,
            m.id AS member_id, m.merchant_id, r.name AS merchant_name, r.activation, m.email,
            m.role, r.livemode, CASE WHEN r.livemode THEN t.id ELSE r.id END AS test_merchant_id,
            NOT r.livemode OR (s.in_test AND t.id IS NOT NULL) AS in_test
        FROM member_session s
        JOIN member m ON m.id = s.member_id
        JOIN merchant r ON r.id = m.merchant_id
        LEFT JOIN merchant t ON t.live_merchant = r.id
        WHERE (s.digest = $1
                OR (s.previous_digest = $1 AND s.rotated_at > clock() - make_interval(secs => $3)))
            AND s.expires_at > clock()
        """,
        digest,
        _ROTATE_AFTER_S,
        _GRACE_S,
    )
    if row is None:
        return None
    return build(
        MemberSession,
        row,
        role=MemberRole(row["role"]),
        activation=ActivationStatus(row["activation"]),
    )


async def set_side(database: Executor, session_id: UUID, *, in_test: bool) -> None:
    """Set the side that the member views in this session."""
    await database.fetch(
        "UPDATE member_session SET in_test = $2 WHERE id = $1", session_id, in_test
    )


async def rotate(
    database: Executor, session_id: UUID, old_digest: bytes, new_digest: bytes
) -> bool:
    """Replace a session's cookie digest; return False if a concurrent request already has."""
    row = await database.row(
        """
        UPDATE member_session
        SET digest = $3, previous_digest = $2, rotated_at = clock()
        WHERE id = $1 AND digest = $2
        RETURNING id
        """,
        session_id,
        old_digest,
        new_digest,
    )
    return row is not None


async def end(database: Executor, session_id: UUID) -> None:
    await database.fetch("DELETE FROM member_session WHERE id = $1", session_id)


async def end_all(database: Executor, member_id: UUID) -> None:
    await database.fetch("DELETE FROM member_session WHERE member_id = $1", member_id)
