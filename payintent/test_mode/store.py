"""Store the test gateway's sessions and refunds."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from payintent.db.database import Database, Executor, Row, Tx
from payintent.db.lists import build
from payintent.gateways.port import DisputeState, GatewayRefundState
from payintent.test_mode.model import (
    PENDING_REFUND_S,
    TEST_CARDS,
    TestGatewayRefund,
    TestRefundBehaviour,
    TestSession,
    TestSessionStatus,
    close_test_session,
)

_SESSION = """
    session_id, account_id, amount_minor, currency, return_url, expires_at, status, card,
    decline_code, decides_at, captured_minor, captured_currency, dispute
"""
_INITIAL_REFUND_STATES = {
    TestRefundBehaviour.IMMEDIATE: GatewayRefundState.DONE,
    TestRefundBehaviour.PENDING: GatewayRefundState.PENDING,
    TestRefundBehaviour.REFUSED: GatewayRefundState.DECLINED,
}


@dataclass(frozen=True, slots=True)
class LockedTestSession:
    session: TestSession  # as of `now`
    now: datetime


async def open_session(database: Database, session: TestSession) -> TestSession:
    """Store a session, or return the session already stored with this id."""
    async with database.transaction() as tx:
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
        stored_session = await lock_session(tx, session.session_id)
    assert stored_session is not None  # noqa: S101 - it was just stored
    return stored_session.session


async def close_session(
    database: Database, account_id: int, session_id: UUID
) -> TestSession | None:
    """Close a session if it is waiting for a card.

    Returns None if the account has no such session.
    """
    async with database.transaction() as tx:
        locked_session = await lock_session(tx, session_id)
        if locked_session is None or locked_session.session.account_id != account_id:
            return None
        closed_session = close_test_session(locked_session.session)
        await update_session(tx, closed_session)
    return closed_session


async def add_refund(
    database: Database, account_id: int, session_id: UUID, refund_id: UUID, amount_minor: int
) -> TestGatewayRefund | None:
    """Store a refund, or return the refund already stored with this id.

    Returns None if the refund exceeds the remaining amount.
    """
    async with database.transaction() as tx:
        locked_session = await lock_session(tx, session_id)
        if locked_session is None or locked_session.session.account_id != account_id:
            return None
        existing_refund = await find_refund(tx, account_id, refund_id)
        if existing_refund is not None:
            return existing_refund
        received_minor = await _sum_received(tx, locked_session.session)
        if amount_minor + await _sum_refunds(tx, session_id) > received_minor:
            return None
        card = TEST_CARDS.get(locked_session.session.card or "")
        refund = TestGatewayRefund(
            refund_id=refund_id,
            session_id=session_id,
            amount_minor=amount_minor,
            state=_INITIAL_REFUND_STATES[
                card.refund_behaviour if card else TestRefundBehaviour.IMMEDIATE
            ],
            done_at=locked_session.now + timedelta(seconds=PENDING_REFUND_S),
        )
        await tx.fetch(
            """
            INSERT INTO test_refund
                (refund_id, account_id, session_id, amount_minor, state, done_at)
            VALUES ($1, $2, $3, $4, $5, $6)
            """,
            refund_id,
            account_id,
            session_id,
            amount_minor,
            refund.state,
            refund.done_at,
        )
    return refund


async def find_session(database: Executor, session_id: UUID) -> TestSession | None:
    """Return the current state of a session."""
    row = await database.row(
        "SELECT" + _SESSION + ", clock() AS now FROM test_session WHERE session_id = $1", session_id
    )
    return _to_session(row).as_of(row["now"]) if row else None


async def lock_session(tx: Tx, session_id: UUID) -> LockedTestSession | None:
    """Lock a session and return its current state."""
    row = await tx.row(
        "SELECT"
        + _SESSION
        + ", clock() AS now FROM test_session WHERE session_id = $1 FOR NO KEY UPDATE",
        session_id,
    )
    return LockedTestSession(_to_session(row).as_of(row["now"]), row["now"]) if row else None


async def update_session(tx: Tx, session: TestSession) -> None:
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


async def find_refund(
    database: Executor, account_id: int, refund_id: UUID
) -> TestGatewayRefund | None:
    """Return the current state of a refund, or None if the account does not have it."""
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
    refund = build(TestGatewayRefund, row, state=GatewayRefundState(row["state"]))
    return refund.as_of(row["now"])


async def _sum_received(tx: Tx, session: TestSession) -> int:
    """Return the captured amount, or the sum of the transfers to the session's address."""
    if session.capture is not None:
        return session.capture.amount_minor
    return await tx.value(
        "SELECT coalesce(sum(amount), 0)::bigint AS total FROM test_transfer WHERE session_id = $1",
        session.session_id,
    )


async def _sum_refunds(tx: Tx, session_id: UUID) -> int:
    return await tx.value(
        """
        SELECT coalesce(sum(amount_minor), 0)::bigint AS total
        FROM test_refund
        WHERE session_id = $1 AND state <> 'declined'
        """,
        session_id,
    )


def _to_session(row: Row) -> TestSession:
    dispute = row["dispute"]
    return build(
        TestSession,
        row,
        status=TestSessionStatus(row["status"]),
        dispute=None if dispute is None else DisputeState(dispute),
    )
