"""What settlements lock and write, many at a time: a gateway's report, or the logs of a chain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from payintent.domain.case import MoneyOrigin
from payintent.domain.ledger import (
    CapturedMoney,
    Fact,
    LedgerEntry,
    adoption_entries,
    capture_entries,
    quoted_charges,
)
from payintent.domain.payment import Payment
from payintent.domain.session import Session
from payintent.domain.settlement import SettlementDecision
from payintent.storage import captures, cases, ledger, payments, sessions
from payintent.storage.captures import NO_CHARGES, SettledCapture
from payintent.storage.cases import NewCase
from payintent.storage.database import Tx, current_time
from payintent.storage.onchain import transfers
from payintent.storage.onchain.transfers import NewTransfer
from payintent.storage.payments import LockedPayments


@dataclass(frozen=True, slots=True)
class EarlierCapture:
    """A locked capture that was reported before."""

    id: UUID
    adoptable: bool  # it came for a session that nobody knew
    given_back: bool  # some of it went back, or is promised back


@dataclass(frozen=True, slots=True)
class LockedRecords:
    """What settlements are decided on; it is true until the commit."""

    payments: dict[UUID, Payment]
    sessions: dict[UUID, Session]
    captures: dict[tuple[int, str], EarlierCapture]  # by account and reference
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """A settlement decision, what it is about, and the money that came."""

    decision: SettlementDecision
    origin: MoneyOrigin
    payment: Payment | None
    session: Session | None
    capture: SettledCapture | None
    transfer: NewTransfer | None = None  # that brought the capture
    case_id: UUID  # of the case that the decision may open
    note: str = ""  # of the case
    uncertain: bool = False  # the amount is not known for sure: no refund without a person


async def load(
    tx: Tx, payment_ids: Sequence[UUID], references: Mapping[UUID, str | None]
) -> LockedRecords:
    """Lock payments by their ids, then their sessions, then captures that were reported before.

    `references` has each session's, which names a capture of the session's own account. The second
    statement sees whatever earlier settlements of these payments have written, because they held
    the payments' locks.
    """
    locked = await _lock_payments(tx, payment_ids)
    rows = await tx.fetch(
        """
        WITH locked AS (
            SELECT n.reference AS s_capture,"""
        + sessions.COLUMNS
        + """
            FROM unnest($1::uuid[], $2::text[]) AS n (id, reference)
            JOIN session s ON s.id = n.id
            ORDER BY s.id
            LIMIT 10000
            FOR UPDATE OF s
        )
        SELECT locked.*, c.id AS capture_id, c.reference, c.adoptable, c.given_back
        FROM locked
        LEFT JOIN LATERAL (
            SELECT id, reference, session_id IS NULL AND receipt_id IS NULL AS adoptable,
                refunded_minor + reserved_minor > 0 AS given_back
            FROM capture
            WHERE account_id = locked.s_account_id AND reference = locked.s_capture
            FOR UPDATE
        ) c ON true
        """,
        list(references),
        list(references.values()),
    )
    return LockedRecords(
        payments={payment.id: payment for payment in locked.payments},
        sessions={row["s_id"]: sessions.from_row(row) for row in rows},
        captures={
            (row["s_account_id"], row["reference"]): EarlierCapture(
                row["capture_id"], row["adoptable"], row["given_back"]
            )
            for row in rows
            if row["capture_id"] is not None
        },
        now=locked.now,
    )


async def _lock_payments(tx: Tx, payment_ids: Sequence[UUID]) -> LockedPayments:
    if not payment_ids:
        return LockedPayments([], await current_time(tx))
    return await payments.lock(tx, payment_ids)


async def save(tx: Tx, settlements: Sequence[Settlement], at: datetime) -> list[NewCase]:
    """Write transfers, captures, cases and sessions, one statement a kind.

    A capture refers to its transfer, and a case to both. Gives the cases that were opened, or that
    had waited for this money.
    """
    await transfers.add(tx, [item.transfer for item in settlements if item.transfer], at)
    await _save_captures(tx, settlements, at)
    opened = await _save_cases(tx, settlements, at)
    await _save_sessions(tx, settlements, at)
    return opened


async def _save_captures(tx: Tx, settlements: Sequence[Settlement], at: datetime) -> None:
    settled = [item.capture for item in settlements if item.capture]
    entries = [entry for item in settlements if item.capture for entry in _entries(item)]
    added = [capture for capture in settled if not capture.adopted]
    await captures.add(tx, added, [entry for entry in entries if entry.fact is Fact.CAPTURE], at)
    adopted = [capture for capture in settled if capture.adopted]
    if adopted:
        await captures.adopt(tx, adopted)
        await ledger.reverse_resolutions(tx, [capture.id for capture in adopted])
        await cases.dismiss_unknown(tx, [capture.id for capture in adopted])
        await cases.give_disputes_to_payments(tx, [capture.id for capture in adopted])
        await ledger.add(tx, [entry for entry in entries if entry.fact is not Fact.CAPTURE])
        await ledger.record_disputes(tx, [capture.id for capture in adopted])


def _entries(item: Settlement) -> list[LedgerEntry]:
    """Derive the ledger's entries of the money that came."""
    capture = item.capture
    assert capture is not None  # noqa: S101 - the caller has looked
    money = CapturedMoney(
        capture_id=capture.id,
        account_id=capture.account_id,
        currency=capture.currency,
        chain=item.transfer.chain if item.transfer else None,
        merchant_id=item.origin.merchant_id,
        credited=capture.credited,
    )
    charges = NO_CHARGES
    if capture.credited and item.session is not None:
        charges = quoted_charges(item.session.quote.price, capture.amount_minor)
    derive = adoption_entries if capture.adopted else capture_entries
    return derive(money, capture.amount_minor, charges)


async def _save_cases(tx: Tx, settlements: Sequence[Settlement], at: datetime) -> list[NewCase]:
    new_cases = [
        NewCase(
            id=item.case_id,
            kind=item.decision.case,
            origin=item.origin,
            capture_id=item.capture.id if item.capture else None,
            receipt_id=item.transfer.id if item.transfer else None,
            note=item.note,
            opened_at=at,
        )
        for item in settlements
        if item.decision.case is not None
    ]
    filled = await cases.fill_undecided(tx, new_cases)
    opened = await cases.open_cases(tx, [case for case in new_cases if case.id not in filled])
    present_ids = filled | {case_id: case_id for case_id in opened}
    return [replace(case, id=present_ids[case.id]) for case in new_cases if case.id in present_ids]


async def _save_sessions(tx: Tx, settlements: Sequence[Settlement], at: datetime) -> None:
    about = [(item, item.decision, item.session) for item in settlements if item.session]
    declined = [session.id for _, decision, session in about if decision.attempt]
    closing = [session.id for _, decision, session in about if decision.close]
    ended = {session.id: decision.outcome for _, decision, session in about if decision.outcome}
    if declined:
        await sessions.count_declines(tx, declined)
    if closing:
        await sessions.mark_closing(tx, closing, at)
    if ended:
        await sessions.mark_all_ended(tx, ended, at)
    for item, decision, session in about:
        if decision.outcome and decision.trigger is None and _has_expired(item.payment):
            note = f"its gateway has ended it: {decision.outcome}"
            await cases.dismiss_undecided(tx, session.id, note)


def _has_expired(payment: Payment | None) -> bool:
    """Tell whether a payment may have left a case for the money of its session."""
    return payment is not None and payment.expired_at is not None
