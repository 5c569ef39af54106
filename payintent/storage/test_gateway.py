"""What the test gateway keeps (tables `test_session` and `test_refund`)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from payintent.domain.gateway import DisputeState, GatewayRefundState
from payintent.domain.test_cards import PENDING_REFUND_S, TEST_CARDS, TestRefunding
from payintent.domain.test_gateway import (
    TestGatewayRefund,
    TestSession,
    TestSessionStatus,
    close,
)
from payintent.storage.database import Database, Executor, Row, Tx

_SESSION = """
    session_id, account_id, amount_minor, currency, return_url, expires_at, status, card,
    decline_code, decides_at, captured_minor, captured_currency, dispute
"""
_REFUNDING = {
    TestRefunding.AT_ONCE: GatewayRefundState.DONE,
    TestRefunding.PENDING: GatewayRefundState.PENDING,
    TestRefunding.REFUSED: GatewayRefundState.DECLINED,
}


@dataclass(frozen=True, slots=True)
class LockedTestSession:
    """A session of the test gateway that is about to be changed, as it is `now`."""

    session: TestSession
    now: datetime


@dataclass(frozen=True, slots=True)
class DatabaseTestGatewayRecords:
    """Implements `TestGatewayRecords` on the database."""

    database: Database

    async def open_session(self, session: TestSession) -> TestSession:
        """Store a session; gives the stored one where there is one of this id."""
        async with self.database.transaction() as tx:
            await _add_session(tx, session)
            stored = await lock_session(tx, session.session_id)
        assert stored is not None  # noqa: S101 - it is there by now
        return stored.session

    async def find_session(self, account_id: int, session_id: UUID) -> TestSession | None:
        """Read a session as it is now; None where this account has none of this id."""
        found = await find_session(self.database, session_id)
        return found if found and found.account_id == account_id else None

    async def close_session(self, account_id: int, session_id: UUID) -> TestSession | None:
        """Close a session that waits for its buyer's card; gives it as it is afterwards."""
        async with self.database.transaction() as tx:
            locked = await lock_session(tx, session_id)
            if locked is None or locked.session.account_id != account_id:
                return None
            closed = close(locked.session)
            await update_session(tx, closed)
        return closed

    async def add_refund(
        self, account_id: int, session_id: UUID, refund_id: UUID, amount_minor: int
    ) -> TestGatewayRefund | None:
        """Store a refund, once for its id; None where so much is not left to be refunded."""
        async with self.database.transaction() as tx:
            locked = await lock_session(tx, session_id)
            if locked is None or locked.session.account_id != account_id:
                return None
            earlier = await _find_refund(tx, account_id, refund_id)
            if earlier is not None:
                return earlier
            capture = locked.session.capture
            if capture is None or capture.amount_minor < amount_minor + await _sum(tx, session_id):
                return None
            card = TEST_CARDS.get(locked.session.card or "")
            state = _REFUNDING[card.refunding if card else TestRefunding.AT_ONCE]
            refund = TestGatewayRefund(
                refund_id=refund_id,
                session_id=session_id,
                amount_minor=amount_minor,
                state=state,
                done_at=locked.now + timedelta(seconds=PENDING_REFUND_S),
            )
            await _add_refund(tx, account_id, refund)
        return refund

    async def find_refund(self, account_id: int, refund_id: UUID) -> TestGatewayRefund | None:
        """Read a refund as it is now; None where this account has none of this id."""
        return await _find_refund(self.database, account_id, refund_id)


async def find_session(database: Executor, session_id: UUID) -> TestSession | None:
    """Read a session as it is now; None where there is none of this id."""
    row = await database.row(
        "SELECT" + _SESSION + ", clock() AS now FROM test_session WHERE session_id = $1", session_id
    )
    return _session(row).at(row["now"]) if row else None


async def lock_session(tx: Tx, session_id: UUID) -> LockedTestSession | None:
    """Lock a session, and read it as it is now; None where there is none of this id."""
    row = await tx.row(
        "SELECT"
        + _SESSION
        + ", clock() AS now FROM test_session WHERE session_id = $1 FOR NO KEY UPDATE",
        session_id,
    )
    return LockedTestSession(_session(row).at(row["now"]), row["now"]) if row else None


async def update_session(tx: Tx, session: TestSession) -> None:
    """Write what has become of a session."""
    await tx.fetch(
        """
        UPDATE test_session
        SET status = $2, card = $3, decline_code = $4, decides_at = $5, captured_minor = $6,
            captured_currency = $7, dispute = $8
        WHERE session_id = $1
        """,
        session.session_id,
        session.status,
        session.card,
        session.decline_code,
        session.decides_at,
        session.captured_minor,
        session.captured_currency,
        session.dispute,
    )


async def _add_session(tx: Tx, session: TestSession) -> None:
    await tx.fetch(
        """
        INSERT INTO test_session
            (session_id, account_id, amount_minor, currency, return_url, expires_at, status)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        ON CONFLICT DO NOTHING
        """,
        session.session_id,
        session.account_id,
        session.amount_minor,
        session.currency,
        session.return_url,
        session.expires_at,
        session.status,
    )


async def _find_refund(
    database: Executor, account_id: int, refund_id: UUID
) -> TestGatewayRefund | None:
    row = await database.row(
        """
        SELECT refund_id, session_id, amount_minor, state, done_at, clock() AS now
        FROM test_refund
        WHERE refund_id = $1 AND account_id = $2
        """,
        refund_id,
        account_id,
    )
    if row is None:
        return None
    refund = TestGatewayRefund(
        refund_id=row["refund_id"],
        session_id=row["session_id"],
        amount_minor=row["amount_minor"],
        state=GatewayRefundState(row["state"]),
        done_at=row["done_at"],
    )
    return refund.at(row["now"])


async def _add_refund(tx: Tx, account_id: int, refund: TestGatewayRefund) -> None:
    await tx.fetch(
        """
        INSERT INTO test_refund (refund_id, account_id, session_id, amount_minor, state, done_at)
        VALUES ($1, $2, $3, $4, $5, $6)
        """,
        refund.refund_id,
        account_id,
        refund.session_id,
        refund.amount_minor,
        refund.state,
        refund.done_at,
    )


async def _sum(tx: Tx, session_id: UUID) -> int:
    row = await tx.row(
        """
        SELECT coalesce(sum(amount_minor), 0)::bigint AS total
        FROM test_refund
        WHERE session_id = $1 AND state <> 'declined'
        """,
        session_id,
    )
    assert row is not None  # noqa: S101 - an aggregate gives one row
    return row["total"]


def _session(row: Row) -> TestSession:
    dispute = row["dispute"]
    return TestSession(
        session_id=row["session_id"],
        account_id=row["account_id"],
        amount_minor=row["amount_minor"],
        currency=row["currency"],
        return_url=row["return_url"],
        expires_at=row["expires_at"],
        status=TestSessionStatus(row["status"]),
        card=row["card"],
        decline_code=row["decline_code"],
        decides_at=row["decides_at"],
        captured_minor=row["captured_minor"],
        captured_currency=row["captured_currency"],
        dispute=None if dispute is None else DisputeState(dispute),
    )
