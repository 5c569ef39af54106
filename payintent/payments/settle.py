"""PROCESSING → PAID, FAILED or on: what a provider says of a session takes its effect."""

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from payintent.domain.case import CaseKind
from payintent.domain.gateway import Capture, GatewaySessionState, SessionReport
from payintent.domain.payment import Payment, PaymentTrigger
from payintent.domain.session import Session, SessionStatus
from payintent.domain.settlement import SettlementDecision, completes_selection, decide_settlement
from payintent.id_generator import IdGenerator
from payintent.payments.create_refund import auto_refund_case
from payintent.payments.transitions import TransitionRequest, apply_transitions, lock_payments
from payintent.storage import captures, cases, sessions
from payintent.storage.captures import EarlierReport, MoneyOrigin
from payintent.storage.database import Tx


async def settle_session(
    tx: Tx, id_generator: IdGenerator, payment_id: UUID, session_id: UUID, report: SessionReport
) -> Payment:
    """Apply a report: however often, late or disordered it comes, it has its effect once.

    The payment is locked first, then the session; every verdict is written in this transaction.
    """
    locked = await lock_payments(tx, [payment_id])
    payment, now = locked.payments[0], locked.now
    session = await sessions.lock(tx, session_id)
    earlier = await _earlier(tx, session, report)
    if earlier is not None and not earlier.adoptable:
        return payment
    if earlier is not None and earlier.given_back:
        # Nobody knew the session when this money came, and it does not pay what it went back from.
        report, earlier = SessionReport(state=GatewaySessionState.CLOSED), None
    origin = MoneyOrigin(
        merchant_id=payment.merchant_id,
        payment_id=payment.id,
        session_id=session.id,
        account_id=session.quote.account_id,
        at=now,
    )
    if completes_selection(payment, session, report):
        payment = await complete_selection(tx, id_generator, payment, session, now)
        session = replace(session, status=SessionStatus.OPEN)
    verdict = decide_settlement(payment, session, report, now)
    if verdict.attempt:
        await sessions.count_decline(tx, session.id)
    if verdict.close:
        await sessions.mark_closing(tx, [session.id], now)
    if verdict.trigger is not None:
        move = TransitionRequest(
            payment=payment,
            trigger=verdict.trigger,
            at=now,
            session=session,
            reason=verdict.reason,
        )
        [payment] = await apply_transitions(tx, [move], id_generator)
    await _keep(tx, id_generator, origin, report, verdict, earlier)
    if verdict.outcome is not None:
        await sessions.mark_ended(tx, session.id, verdict.outcome, now)
        if payment.expired_at is not None and verdict.trigger is None:
            note = f"its gateway has ended it: {verdict.outcome}"
            await captures.dismiss_undecided(tx, session.id, note)
    return payment


async def complete_selection(
    tx: Tx, id_generator: IdGenerator, payment: Payment, session: Session, now: datetime
) -> Payment:
    """Make an opening session the payment's own; the one that it replaces is to be closed."""
    previous = payment.session_id
    await sessions.mark_open(tx, session.id, session.reference, session.next_action)
    move = TransitionRequest(
        payment=payment, trigger=PaymentTrigger.SELECT, at=now, session=session
    )
    [payment] = await apply_transitions(tx, [move], id_generator)
    if previous is not None:
        await sessions.mark_closing(tx, [previous], now)
    return payment


async def note_verbatim(tx: Tx, case_id: UUID, capture: Capture) -> None:
    """Let a case say what the provider says, where our minor units cannot."""
    if capture.verbatim is not None:
        await cases.add_note(tx, case_id, f"the provider says {capture.verbatim}")


async def _earlier(tx: Tx, session: Session, report: SessionReport) -> EarlierReport | None:
    if report.capture is None:
        return None
    account_id = session.quote.account_id
    return await captures.find_reported(tx, account_id, report.capture.reference)


async def _keep(
    tx: Tx,
    id_generator: IdGenerator,
    origin: MoneyOrigin,
    report: SessionReport,
    verdict: SettlementDecision,
    earlier: EarlierReport | None,
) -> None:
    capture_id = None
    if earlier is not None:
        capture_id = earlier.id
        await captures.adopt(tx, capture_id, origin, credited=verdict.credited)
    elif report.capture is not None:
        capture_id = id_generator.new_id()
        await captures.add(tx, capture_id, origin, report.capture, credited=verdict.credited)
    if verdict.case is not None:
        case_id = await _open_case(tx, id_generator, origin, verdict.case, capture_id)
        if case_id is not None and report.capture is not None:
            await note_verbatim(tx, case_id, report.capture)
        if case_id is not None and capture_id is not None:
            await auto_refund_case(
                tx, id_generator, verdict.case, case_id, capture_id, origin.merchant_id
            )


async def _open_case(
    tx: Tx, id_generator: IdGenerator, origin: MoneyOrigin, kind: CaseKind, capture_id: UUID | None
) -> UUID | None:
    """Open a case, or fill the one that waits for this money; None where it stood before."""
    if capture_id is not None and origin.session_id is not None:
        waiting = await captures.fill_undecided(tx, origin.session_id, kind, capture_id)
        if waiting is not None:
            return waiting
    case_id = id_generator.new_id()
    opened = await cases.open_case(tx, case_id, kind, origin, capture_id)
    return case_id if opened else None
