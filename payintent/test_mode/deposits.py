"""Decide the effects of transfers to the address of a test session.

The rules are the same as for real deposits. The transfers are rows in a table, and there is no
chain.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from payintent.db.database import Executor, Row, Tx
from payintent.gateways.port import SessionReport
from payintent.onchain.deposit_rules import (
    DepositEvidence,
    FinalDeposit,
    decide_captures,
    decide_deposit_session,
)
from payintent.test_mode import store as test_store
from payintent.test_mode.model import TestSession

TRANSFERS_MAX = 100  # per session


@dataclass(frozen=True, slots=True)
class TestTransfer:
    token: str | None = None  # None: the session's token
    amount_minor: int | None = None  # None: the remaining amount


async def add_transfer(tx: Tx, session_id: UUID, transfer: TestTransfer) -> TestSession | None:
    """Store a transfer to a session's address, and the resulting reports.

    Returns None if the session does not exist or has too many transfers, or if the transfer would
    be empty because nothing remains to be paid.
    """
    locked_session = await test_store.lock_session(tx, session_id)
    if locked_session is None:
        return None
    session, now = locked_session.session, locked_session.now
    row = await tx.row(
        """
        SELECT count(*) AS number, coalesce(sum(amount) FILTER (WHERE token = $2), 0)::bigint AS sum
        FROM test_transfer WHERE session_id = $1
        """,
        session_id,
        session.currency,
    )
    assert row is not None  # noqa: S101 - an aggregate always returns a row
    amount = transfer.amount_minor or session.amount_minor - row["sum"]
    if amount <= 0 or row["number"] >= TRANSFERS_MAX:
        return None
    await tx.fetch(
        "INSERT INTO test_transfer (session_id, token, amount, in_time) VALUES ($1, $2, $3, $4)",
        session_id,
        transfer.token or session.currency,
        amount,
        now <= session.expires_at,
    )
    await _capture(tx, session_id)
    return session


async def report(tx: Tx, session_id: UUID) -> SessionReport:
    """Report a session's state. At its deadline, transfers that are too small are captured."""
    await test_store.lock_session(tx, session_id)
    await _capture(tx, session_id)
    reports = await list_reports(tx, session_id)
    return reports[0] if reports else decide_deposit_session(await _load_evidence(tx, session_id))


async def list_reports(database: Executor, session_id: UUID) -> list[SessionReport]:
    """List the captures that were reported to the service, in order."""
    rows = await database.fetch(
        """
        SELECT reports::text AS reports FROM test_transfer
        WHERE session_id = $1 AND reports IS NOT NULL ORDER BY id
        """,
        session_id,
    )
    decoder = msgspec.json.Decoder(list[SessionReport])
    return [item for row in rows for item in decoder.decode(row["reports"])]


async def _capture(tx: Tx, session_id: UUID) -> None:
    """Store the captures that currently result from the session's transfers."""
    evidence = await _load_evidence(tx, session_id)
    captures = decide_captures(evidence)
    for last_id in {capture.last_id: None for capture in captures}:
        reports = [capture.report for capture in captures if capture.last_id == last_id]
        await tx.fetch(
            "UPDATE test_transfer SET reports = $2 WHERE id = $1",
            last_id.int,
            msgspec.json.encode(reports).decode(),
        )
    captured_ids = [item.int for capture in captures for item in capture.deposit_ids]
    await tx.fetch("UPDATE test_transfer SET captured = true WHERE id = ANY($1)", captured_ids)


async def _load_evidence(tx: Tx, session_id: UUID) -> DepositEvidence:
    """Load the facts about a session, and its transfers that have not been captured yet."""
    row = await tx.row(
        """
        SELECT t.expires_at, t.currency, t.amount_minor, clock() AS now,
            (t.amount_minor * m.deposit_tolerance / 100)::bigint AS tolerance,
            coalesce(p.session_id = t.session_id AND p.status = 'PROCESSING', false) AS is_current
        FROM test_session t
        JOIN session s ON s.id = t.session_id
        JOIN payment p ON p.id = s.payment_id
        JOIN merchant m ON m.id = p.merchant_id
        WHERE t.session_id = $1
        """,
        session_id,
    )
    assert row is not None  # noqa: S101 - the session is locked
    transfers = await tx.fetch(
        """
        SELECT id, tx_hash, token, amount, in_time FROM test_transfer
        WHERE session_id = $1 AND NOT captured ORDER BY id
        """,
        session_id,
    )
    deadline: datetime = row["expires_at"]
    return DepositEvidence(
        now=row["now"],
        deadline=deadline,
        currency=row["currency"],
        amount=row["amount_minor"],
        tolerance=row["tolerance"],
        surplus_min=1,
        is_current=row["is_current"],
        read_until=row["now"],
        has_pending=False,
        has_unproven=False,
        was_pending=False,
        deposits=tuple(_to_deposit(transfer, deadline) for transfer in transfers),
    )


def _to_deposit(row: Row, deadline: datetime) -> FinalDeposit:
    """Convert a transfer to a deposit that has the row's id."""
    return FinalDeposit(
        id=UUID(int=row["id"]),
        reference=f"0x{row['tx_hash'].hex()}:0",
        currency=row["token"],
        amount=row["amount"],
        mined_at=deadline if row["in_time"] else deadline + timedelta(seconds=1),
    )
