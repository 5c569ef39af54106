"""PROCESSING → PAID, FAILED or on: what a provider says of a session takes its effect."""

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from payintent.domain.gateway import Capture, GatewaySessionState, SessionReport
from payintent.domain.payment import Payment, PaymentTrigger
from payintent.domain.session import Session, SessionStatus
from payintent.domain.settlement import SettlementDecision, completes_selection, decide_settlement
from payintent.id_generator import IdGenerator
from payintent.payments.cases import session_origin
from payintent.payments.create_refund import auto_refund_case
from payintent.payments.transitions import TransitionRequest, apply_transitions, lock_payments
from payintent.storage import captures, cases, sessions
from payintent.storage.captures import EarlierReport
from payintent.storage.cases import NewCase
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
    await _keep(tx, id_generator, payment, session, report, verdict, earlier, now)
    if verdict.outcome is not None:
        await sessions.mark_ended(tx, session.id, verdict.outcome, now)
        if payment.expired_at is not None and verdict.trigger is None:
            note = f"its gateway has ended it: {verdict.outcome}"
            await cases.dismiss_undecided(tx, session.id, note)
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


def verbatim_note(capture: Capture | None) -> str:
    """Word for a case what the gateway says, where our minor units cannot; empty where they can."""
    if capture is None or capture.verbatim is None:
        return ""
    return f"the provider says {capture.verbatim}"


async def _earlier(tx: Tx, session: Session, report: SessionReport) -> EarlierReport | None:
    if report.capture is None:
        return None
    account_id = session.quote.account_id
    return await captures.find_reported(tx, account_id, report.capture.reference)


async def _keep(  # noqa: PLR0917
    tx: Tx,
    id_generator: IdGenerator,
    payment: Payment,
    session: Session,
    report: SessionReport,
    verdict: SettlementDecision,
    earlier: EarlierReport | None,
    now: datetime,
) -> None:
    origin, account_id = session_origin(payment, session.id), session.quote.account_id
    capture, capture_id, credited = report.capture, None, verdict.credited
    if earlier is not None:
        capture_id = earlier.id
        await captures.adopt(tx, capture_id, origin, credited=credited)
        await cases.dismiss_unknown(tx, capture_id)
    elif capture is not None:
        capture_id = id_generator.new_id()
        await captures.add(tx, capture_id, account_id, origin, capture, now, credited=credited)
    if verdict.case is None:
        return
    case = NewCase(
        id=id_generator.new_id(),
        kind=verdict.case,
        origin=origin,
        capture_id=capture_id,
        note=verbatim_note(capture),
        opened_at=now,
    )
    filled = await cases.fill_undecided(tx, [case])
    opened = filled or await cases.open_cases(tx, [case])
    if opened and capture_id is not None:
        case_id = filled.get(case.id, case.id)
        await auto_refund_case(tx, id_generator, case.kind, case_id, capture_id, origin.merchant_id)
