"""Apply gateway reports and chain transfers, which complete or fail payments."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from payintent.db.database import Tx
from payintent.gateways.port import Capture, GatewaySessionState, SessionReport
from payintent.payment_sessions import store as settlement_store
from payintent.payment_sessions.settlement_rules import completes_selection, decide_settlement
from payintent.payment_sessions.store import LockedRecords, Settlement, StoredCapture
from payintent.payments import captures_store as capture_store
from payintent.payments import sessions_store as session_store
from payintent.payments.captures_store import SettledCapture, make_session_origin
from payintent.payments.model import (
    Payment,
    PaymentTrigger,
    Session,
    SessionStatus,
    TransitionRequest,
)
from payintent.payments.transitions import apply_transitions
from payintent.refunds.create import auto_refund_case
from payintent.runtime.id_generator import IdGenerator


@dataclass(frozen=True, slots=True)
class ReportedSession:
    payment_id: UUID
    session_id: UUID
    report: SessionReport


async def settle_session(
    tx: Tx, payment_id: UUID, session_id: UUID, report: SessionReport
) -> Payment:
    """Apply a report exactly once, even if it arrives repeatedly, late or out of order."""
    [payment] = await settle_sessions(tx, [ReportedSession(payment_id, session_id, report)])
    return payment


async def settle_sessions(tx: Tx, reports: Sequence[ReportedSession]) -> list[Payment]:
    """Apply reports, at most one per payment, in this transaction, and return the payments.

    Locks the payments, then the sessions.
    """
    records = await settlement_store.lock_records(
        tx,
        [item.payment_id for item in reports],
        {
            item.session_id: item.report.capture and item.report.capture.reference
            for item in reports
        },
    )
    settlements = [
        settlement
        for item in reports
        if (settlement := await _decide_report(tx, records, item)) is not None
    ]
    changed_payments = await apply_settlements(tx, settlements, records.now)
    selected_payments = [
        settlement.payment for settlement in settlements if settlement.payment is not None
    ]
    current_payments = records.payments | {
        payment.id: payment for payment in (*selected_payments, *changed_payments)
    }
    return [current_payments[item.payment_id] for item in reports]


async def _decide_report(
    tx: Tx, records: LockedRecords, item: ReportedSession
) -> Settlement | None:
    """Decide the effect of a report. Returns None if its money is already recorded."""
    report = item.report
    payment, session = records.payments[item.payment_id], records.sessions[item.session_id]
    stored_capture = report.capture and records.captures.get(
        (session.quote.account_id, report.capture.reference)
    )
    if stored_capture is not None and not stored_capture.is_unassigned:
        return None
    if await _is_already_stored(tx, session, report, is_unused=stored_capture is None):
        return None
    if stored_capture is not None and stored_capture.has_refunds:
        # A capture that was stored without its session, and has refunds, cannot complete the
        # payment.
        report, stored_capture = SessionReport(state=GatewaySessionState.CLOSED), None
    if completes_selection(payment, session, report):
        [payment] = await complete_selections(tx, [(payment, session)], records.now)
        session = replace(session, status=SessionStatus.OPEN)
    return _build_settlement(tx.id_generator, payment, session, report, stored_capture, records.now)


async def _is_already_stored(
    tx: Tx, session: Session, report: SessionReport, *, is_unused: bool
) -> bool:
    """Return whether the capture is stored under a shorter or longer form of its reference."""
    if report.capture is None or session.status is not SessionStatus.ENDED:
        return False
    return await capture_store.complete_reference(
        tx, session.payment_id, session.id, report.capture.reference, is_unused=is_unused
    )


async def apply_settlements(
    tx: Tx, settlements: Sequence[Settlement], at: datetime
) -> list[Payment]:
    """Write settlements and return the payments that changed.

    Writes statuses and events first, then captures with their cases, then sessions. Refunds the
    money in a case immediately if its merchant has enabled automatic refunds.
    """
    requests = [
        TransitionRequest(
            payment=item.payment,
            trigger=item.decision.trigger,
            at=at,
            session=item.session,
            reason=item.decision.reason,
        )
        for item in settlements
        if item.payment is not None and item.decision.trigger is not None
    ]
    changed_payments = await apply_transitions(tx, requests)
    uncertain_ids = {item.capture.id for item in settlements if item.capture and item.is_uncertain}
    for case in await settlement_store.write_settlements(tx, settlements, at):
        if case.capture_id is not None and case.capture_id not in uncertain_ids:
            merchant_id = case.origin.merchant_id
            await auto_refund_case(tx, case.kind, case.id, case.capture_id, merchant_id)
    return changed_payments


def make_reported_amount_note(capture: Capture | None) -> str:
    """Return a case note with the reported amount if minor units cannot represent it."""
    if capture is None or capture.verbatim is None:
        return ""
    return f"the provider reported {capture.verbatim}"


def _build_settlement(
    id_generator: IdGenerator,
    payment: Payment,
    session: Session,
    report: SessionReport,
    stored_capture: StoredCapture | None,
    now: datetime,
) -> Settlement:
    decision = decide_settlement(payment, session, report, now)
    origin, capture = make_session_origin(payment, session.id), None
    if report.capture is not None:
        capture = SettledCapture(
            id=stored_capture.id if stored_capture else id_generator.new_id(),
            account_id=session.quote.account_id,
            reference=report.capture.reference,
            origin=origin,
            currency=report.capture.currency,
            amount_minor=report.capture.amount_minor,
            credited=decision.credited,
            is_stored=stored_capture is not None,
        )
    return Settlement(
        decision=decision,
        origin=origin,
        payment=payment,
        session=session,
        capture=capture,
        chain=session.quote.chain,
        case_id=id_generator.new_id(),
        note=make_reported_amount_note(report.capture),
        is_uncertain=report.capture is not None and report.capture.uncertain,
    )


async def complete_selections(
    tx: Tx, selections: Sequence[tuple[Payment, Session]], now: datetime
) -> list[Payment]:
    """Make each opened session its payment's current session; mark replaced sessions as closing."""
    if not selections:
        return []
    await session_store.mark_open(tx, [session for _, session in selections])
    requests = [
        TransitionRequest(payment=payment, trigger=PaymentTrigger.SELECT, at=now, session=session)
        for payment, session in selections
    ]
    changed_payments = await apply_transitions(tx, requests)
    replaced_ids = [payment.session_id for payment, _ in selections if payment.session_id]
    if replaced_ids:
        await session_store.mark_closing(tx, replaced_ids, now)
    return changed_payments
