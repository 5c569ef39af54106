"""Lock the rows that settlements affect, and write captures, cases and sessions."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from payintent.accounting import ledger_store
from payintent.accounting.model import (
    CapturedMoney,
    Fact,
    LedgerEntry,
    get_quoted_charges,
    make_assignment_entries,
    make_capture_entries,
)
from payintent.cases import store as case_store
from payintent.cases.store import NewCase
from payintent.chains.store import DEPOSIT_PROVIDER
from payintent.db.database import Executor, Tx, get_current_time
from payintent.payment_sessions.settlement_rules import SettlementDecision
from payintent.payments import captures_store as capture_store
from payintent.payments import sessions_store as session_store
from payintent.payments import store as payment_store
from payintent.payments.captures_store import NO_CHARGES, MoneyOrigin, SettledCapture
from payintent.payments.model import Payment, Session
from payintent.payments.store import LockedPayments


@dataclass(frozen=True, slots=True)
class StoredCapture:
    """A locked capture from an earlier report."""

    id: UUID
    is_unassigned: bool  # stored without a session, because its session was unknown
    has_refunds: bool  # completed or reserved


@dataclass(frozen=True, slots=True)
class LockedRecords:
    """Locked rows that settlement decisions are based on; valid until the commit."""

    payments: dict[UUID, Payment]
    sessions: dict[UUID, Session]
    captures: dict[tuple[int, str], StoredCapture]  # by account and reference
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """A settlement decision with its payment, session and captured money."""

    decision: SettlementDecision
    origin: MoneyOrigin
    payment: Payment | None
    session: Session | None
    capture: SettledCapture | None
    receipt_id: UUID | None = None  # the stored chain transfer, if any
    chain: str | None = None
    case_id: UUID  # used if the decision opens a case
    note: str = ""  # for the case
    is_uncertain: bool = False  # the amount is unconfirmed and never refunded automatically


async def lock_records(
    tx: Tx, payment_ids: Sequence[UUID], references: Mapping[UUID, str | None]
) -> LockedRecords:
    """Lock payments, then sessions, then captures with the sessions' references.

    `references` maps session ids to capture references in the session's account. Payments are
    locked in a separate statement, so that the next statement sees all their earlier settlements.
    """
    locked_payments = (
        await payment_store.lock(tx, payment_ids)
        if payment_ids
        else LockedPayments([], await get_current_time(tx))
    )
    rows = await tx.fetch(
        """
        WITH locked AS (
            SELECT n.reference AS s_capture,"""
        + session_store.COLUMNS
        + """
            FROM unnest($1::uuid[], $2::text[]) AS n (id, reference)
            JOIN session s ON s.id = n.id
            ORDER BY s.id
            LIMIT 10000
            FOR UPDATE OF s
        )
        SELECT locked.*, c.id AS capture_id, c.reference, c.is_unassigned, c.has_refunds
        FROM locked
        LEFT JOIN LATERAL (
            SELECT id, reference, session_id IS NULL AND receipt_id IS NULL AS is_unassigned,
                refunded_minor + reserved_minor > 0 AS has_refunds
            FROM capture
            WHERE account_id = locked.s_account_id AND reference = locked.s_capture
            FOR UPDATE
        ) c ON true
        """,
        list(references),
        list(references.values()),
    )
    return LockedRecords(
        payments={payment.id: payment for payment in locked_payments.payments},
        sessions={row["s_id"]: session_store.from_row(row) for row in rows},
        captures={
            (row["s_account_id"], row["reference"]): StoredCapture(
                row["capture_id"], row["is_unassigned"], row["has_refunds"]
            )
            for row in rows
            if row["capture_id"] is not None
        },
        now=locked_payments.now,
    )


async def lock_sessions(tx: Tx, session_ids: Collection[UUID]) -> None:
    """Lock sessions after their payments, in the order that all transactions use."""
    if not session_ids:
        return
    rows = await tx.fetch(
        "SELECT payment_id FROM session WHERE id = ANY($1::uuid[])", list(session_ids)
    )
    await lock_records(tx, list({row["payment_id"] for row in rows}), dict.fromkeys(session_ids))


async def count_transactions(database: Executor, session_id: UUID) -> int:
    """Count a session's chain transactions, including pending and posted transactions."""
    return await database.value(
        """
        SELECT count(*) AS number
        FROM (
            SELECT tx_hash FROM chain_receipt WHERE session_id = $1
            UNION
            SELECT tx_hash FROM chain_sighting WHERE session_id = $1 AND gone_at IS NULL
            UNION
            SELECT tx_hash FROM chain_hint WHERE session_id = $1
        ) t
        """,
        session_id,
    )


async def write_settlements(
    tx: Tx, settlements: Sequence[Settlement], at: datetime
) -> list[NewCase]:
    """Write captures, cases and sessions, and return the cases that now hold the money.

    Each case is either new, or was opened earlier and has been undecided until now.
    """
    await _write_captures(tx, settlements, at)
    settled_cases = await _write_cases(tx, settlements, at)
    await _write_sessions(tx, settlements, at)
    return settled_cases


async def _write_captures(tx: Tx, settlements: Sequence[Settlement], at: datetime) -> None:
    settled_captures = [item.capture for item in settlements if item.capture]
    entries = [
        entry for item in settlements if item.capture for entry in _make_ledger_entries(item)
    ]
    new_captures = [capture for capture in settled_captures if not capture.is_stored]
    await capture_store.add(
        tx, new_captures, [entry for entry in entries if entry.fact is Fact.CAPTURE], at
    )
    assigned_captures = [capture for capture in settled_captures if capture.is_stored]
    assigned_ids = [capture.id for capture in assigned_captures]
    if assigned_ids:
        await capture_store.assign_to_sessions(tx, assigned_captures)
        await ledger_store.reverse_resolutions(tx, assigned_ids)
        await case_store.dismiss_unknown_captures(tx, assigned_ids)
        await case_store.assign_disputes_to_payments(tx, assigned_ids)
        await ledger_store.add(tx, [entry for entry in entries if entry.fact is not Fact.CAPTURE])
        await ledger_store.record_disputes(tx, assigned_ids)


def _make_ledger_entries(item: Settlement) -> list[LedgerEntry]:
    capture = item.capture
    assert capture is not None  # noqa: S101 - checked by the caller
    money = CapturedMoney(
        capture_id=capture.id,
        account_id=capture.account_id,
        currency=capture.currency,
        chain=item.chain,
        merchant_id=item.origin.merchant_id,
        credited=capture.credited,
        is_deposit=item.session is not None and item.session.quote.provider == DEPOSIT_PROVIDER,
    )
    charges = NO_CHARGES
    if capture.credited and item.session is not None:
        charges = get_quoted_charges(item.session.quote.price, capture.amount_minor)
    make_entries = make_assignment_entries if capture.is_stored else make_capture_entries
    return make_entries(money, capture.amount_minor, charges)


async def _write_cases(tx: Tx, settlements: Sequence[Settlement], at: datetime) -> list[NewCase]:
    new_cases = [
        NewCase(
            id=item.case_id,
            kind=item.decision.case,
            origin=item.origin,
            capture_id=item.capture.id if item.capture else None,
            receipt_id=item.receipt_id,
            note=item.note,
            opened_at=at,
        )
        for item in settlements
        if item.decision.case is not None
    ]
    case_ids = await case_store.update_undecided_cases(tx, new_cases)
    opened_ids = await case_store.open_cases(
        tx, [case for case in new_cases if case.id not in case_ids]
    )
    case_ids |= {case_id: case_id for case_id in opened_ids}
    return [replace(case, id=case_ids[case.id]) for case in new_cases if case.id in case_ids]


async def _write_sessions(tx: Tx, settlements: Sequence[Settlement], at: datetime) -> None:
    decisions = [(item.session.id, item.decision) for item in settlements if item.session]
    declined_ids = [session_id for session_id, decision in decisions if decision.counts_attempt]
    closing_ids = [session_id for session_id, decision in decisions if decision.closes_session]
    outcomes = {
        session_id: decision.outcome for session_id, decision in decisions if decision.outcome
    }
    if declined_ids:
        await session_store.increment_declines(tx, declined_ids)
    if closing_ids:
        await session_store.mark_closing(tx, closing_ids, at)
    if outcomes:
        await session_store.mark_ended(tx, outcomes, at)
    for item in settlements:
        outcome = item.decision.outcome
        has_expired = item.payment is not None and item.payment.expired_at is not None
        if item.session and outcome and item.decision.trigger is None and has_expired:
            # When the payment expired, a case may have been opened for this session's money.
            note = f"the gateway has ended the session: {outcome}"
            await case_store.dismiss_undecided_case(tx, item.session.id, note)
