"""Captures, and the cases of money that no payment may own."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.domain.gateway import Capture
from payintent.domain.settlement import CaseKind
from payintent.storage.database import Executor, Row, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case as it is kept."""

    id: UUID
    kind: CaseKind
    merchant_id: int
    payment_id: UUID
    session_id: UUID
    capture_id: UUID | None
    status: str
    opened_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where money arrived: the session it was taken for, and when we learnt of it."""

    merchant_id: int
    payment_id: UUID
    session_id: UUID
    account_id: int
    at: datetime


async def known(tx: Tx, account_id: int, reference: str) -> bool:
    """Tell whether a capture was reported before."""
    row = await tx.row(
        "SELECT id FROM capture WHERE account_id = $1 AND reference = $2", account_id, reference
    )
    return row is not None


async def add(tx: Tx, capture_id: UUID, place: Place, capture: Capture, *, credited: bool) -> None:
    """Keep a capture that nobody reported before."""
    await tx.fetch(
        """
        INSERT INTO capture
            (id, account_id, reference, session_id, payment_id, currency, amount_minor, credited,
             captured_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        """,
        capture_id,
        place.account_id,
        capture.reference,
        place.session_id,
        place.payment_id,
        capture.currency,
        capture.amount_minor,
        credited,
        place.at,
    )


async def open_case(
    tx: Tx, case_id: UUID, kind: CaseKind, place: Place, capture_id: UUID | None
) -> None:
    """Open a case; one of its kind for one capture is enough."""
    await tx.fetch(
        """
        INSERT INTO money_case
            (id, kind, merchant_id, payment_id, session_id, capture_id, opened_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        ON CONFLICT ON CONSTRAINT money_case_once DO NOTHING
        """,
        case_id,
        kind,
        place.merchant_id,
        place.payment_id,
        place.session_id,
        capture_id,
        place.at,
    )


async def cases_of(database: Executor, payment_id: UUID) -> list[Case]:
    """List the cases of a payment, oldest first."""
    rows = await database.fetch(
        """
        SELECT id, kind, merchant_id, payment_id, session_id, capture_id, status, opened_at
        FROM money_case
        WHERE payment_id = $1
        ORDER BY id
        LIMIT 1000
        """,
        payment_id,
    )
    return [_case(row) for row in rows]


def _case(row: Row) -> Case:
    values = dict(row)
    values["kind"] = CaseKind(row["kind"])
    return Case(**values)
