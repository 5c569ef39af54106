"""PROCESSING → PAID, FAILED or on: what a provider says of a session takes its effect."""

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from payintent.domain.gateway import Capture, Report, SessionState
from payintent.domain.payment import Payment, Trigger
from payintent.domain.session import Life, Session
from payintent.domain.settlement import CaseKind, Verdict, completes_selection, judge
from payintent.id_generator import Mint
from payintent.payments.create_refund import give_back
from payintent.payments.transitions import Move, advance, lock
from payintent.storage import captures, cases, sessions
from payintent.storage.captures import EarlierReport, Place
from payintent.storage.database import Tx


async def settle(tx: Tx, mint: Mint, payment_id: UUID, session_id: UUID, report: Report) -> Payment:
    """Apply a report: however often, late or disordered it comes, it has its effect once.

    The payment is locked first, then the session; every verdict is written in this transaction.
    """
    locked = await lock(tx, [payment_id])
    payment, now = locked.payments[0], locked.now
    session = await sessions.lock(tx, session_id)
    earlier = await _earlier(tx, session, report)
    if earlier is not None and not earlier.adoptable:
        return payment
    if earlier is not None and earlier.given_back:
        # Nobody knew the session when this money came, and it does not pay what it went back from.
        report, earlier = Report(state=SessionState.CLOSED), None
    place = Place(
        merchant_id=payment.merchant_id,
        payment_id=payment.id,
        session_id=session.id,
        account_id=session.offer.account_id,
        at=now,
    )
    if completes_selection(payment, session, report):
        payment = await complete_selection(tx, mint, payment, session, now)
        session = replace(session, life=Life.OPEN)
    verdict = judge(payment, session, report, now)
    if verdict.attempt:
        await sessions.count_decline(tx, session.id)
    if verdict.close:
        await sessions.close(tx, [session.id], now)
    if verdict.trigger is not None:
        move = Move(
            payment=payment,
            trigger=verdict.trigger,
            at=now,
            session=session,
            reason=verdict.reason,
        )
        [payment] = await advance(tx, [move], mint)
    await _keep(tx, mint, place, report, verdict, earlier)
    if verdict.outcome is not None:
        await sessions.end(tx, session.id, verdict.outcome, now)
        if payment.expired_at is not None and verdict.trigger is None:
            note = f"its gateway has ended it: {verdict.outcome}"
            await captures.dismiss_undecided(tx, session.id, note)
    return payment


async def complete_selection(
    tx: Tx, mint: Mint, payment: Payment, session: Session, now: datetime
) -> Payment:
    """Make an opening session the payment's own; the one that it replaces is to be closed."""
    previous = payment.session_id
    await sessions.opened(tx, session.id, session.reference, session.next_action)
    move = Move(payment=payment, trigger=Trigger.SELECT, at=now, session=session)
    [payment] = await advance(tx, [move], mint)
    if previous is not None:
        await sessions.close(tx, [previous], now)
    return payment


async def note_verbatim(tx: Tx, case_id: UUID, capture: Capture) -> None:
    """Let a case say what the provider says, where our minor units cannot."""
    if capture.verbatim is not None:
        await cases.add_note(tx, case_id, f"the provider says {capture.verbatim}")


async def _earlier(tx: Tx, session: Session, report: Report) -> EarlierReport | None:
    if report.capture is None:
        return None
    account_id = session.offer.account_id
    return await captures.find_reported(tx, account_id, report.capture.reference)


async def _keep(
    tx: Tx,
    mint: Mint,
    place: Place,
    report: Report,
    verdict: Verdict,
    earlier: EarlierReport | None,
) -> None:
    capture_id = None
    if earlier is not None:
        capture_id = earlier.id
        await captures.adopt(tx, capture_id, place, credited=verdict.credited)
    elif report.capture is not None:
        capture_id = mint.id()
        await captures.add(tx, capture_id, place, report.capture, credited=verdict.credited)
    if verdict.case is not None:
        case_id = await _open_case(tx, mint, place, verdict.case, capture_id)
        if case_id is not None and report.capture is not None:
            await note_verbatim(tx, case_id, report.capture)
        if case_id is not None and capture_id is not None:
            await give_back(tx, mint, verdict.case, case_id, capture_id, place.merchant_id)


async def _open_case(
    tx: Tx, mint: Mint, place: Place, kind: CaseKind, capture_id: UUID | None
) -> UUID | None:
    """Open a case, or fill the one that waits for this money; None where it stood before."""
    if capture_id is not None and place.session_id is not None:
        waiting = await captures.fill_undecided(tx, place.session_id, kind, capture_id)
        if waiting is not None:
            return waiting
    case_id = mint.id()
    opened = await captures.open_case(tx, case_id, kind, place, capture_id)
    return case_id if opened else None
