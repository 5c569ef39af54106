"""What gateways and chains say of sessions takes its effect: PROCESSING → PAID, FAILED or on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from payintent.domain.gateway import Capture, GatewaySessionState, SessionReport
from payintent.domain.payment import Payment, PaymentTrigger
from payintent.domain.session import Session, SessionStatus
from payintent.domain.settlement import completes_selection, decide_settlement
from payintent.id_generator import IdGenerator
from payintent.payments.cases import session_origin
from payintent.payments.create_refund import auto_refund_case
from payintent.payments.transitions import TransitionRequest, apply_transitions
from payintent.storage import captures, sessions, settlements
from payintent.storage.captures import SettledCapture
from payintent.storage.database import Tx
from payintent.storage.settlements import EarlierCapture, LockedRecords, Settlement


@dataclass(frozen=True, slots=True)
class ReportedSession:
    payment_id: UUID
    session_id: UUID
    report: SessionReport


async def settle_session(
    tx: Tx, payment_id: UUID, session_id: UUID, report: SessionReport
) -> Payment:
    """Apply a report: however often, late or out of order it comes, it takes effect once."""
    reported = ReportedSession(payment_id, session_id, report)
    [payment] = await settle_sessions(tx, [reported])
    return payment


async def settle_sessions(tx: Tx, reported: Sequence[ReportedSession]) -> list[Payment]:
    """Apply reports about different payments, as `settle_session` does; gives the payments.

    The payments are locked first, then the sessions; all is written in this transaction.
    """
    locked = await settlements.load(
        tx, [item.payment_id for item in reported], dict(map(_reference, reported))
    )
    found = [await _settle(tx, locked, item) for item in reported]
    decided = [settlement for settlement in found if settlement is not None]
    changed = await apply_settlements(tx, decided, locked.now)
    selected = [settlement.payment for settlement in decided if settlement.payment is not None]
    present = locked.payments | {payment.id: payment for payment in (*selected, *changed)}
    return [present[item.payment_id] for item in reported]


def _reference(item: ReportedSession) -> tuple[UUID, str | None]:
    return item.session_id, item.report.capture.reference if item.report.capture else None


async def _settle(tx: Tx, locked: LockedRecords, item: ReportedSession) -> Settlement | None:
    """Decide on a report; None where its money was reported before."""
    report = item.report
    payment, session = locked.payments[item.payment_id], locked.sessions[item.session_id]
    earlier = _earlier(locked, session, report)
    if earlier is not None and not earlier.adoptable:
        return None
    if await _is_known_by_another_reference(tx, session, report, is_free=earlier is None):
        return None
    if earlier is not None and earlier.given_back:
        # The session was unknown when this money came, and what was partly refunded pays nothing.
        report, earlier = SessionReport(state=GatewaySessionState.CLOSED), None
    if completes_selection(payment, session, report):
        [payment] = await complete_selections(tx, [(payment, session)], locked.now)
        session = replace(session, status=SessionStatus.OPEN)
    return _decide(tx.id_generator, payment, session, report, earlier, locked.now)


async def _is_known_by_another_reference(
    tx: Tx, session: Session, report: SessionReport, *, is_free: bool
) -> bool:
    """Tell whether this money was stored under a part of its reference, or under all of it."""
    if report.capture is None or session.status is not SessionStatus.ENDED:
        return False
    return await captures.complete_reference(
        tx, session.payment_id, session.id, report.capture.reference, is_free=is_free
    )


async def apply_settlements(tx: Tx, decided: Sequence[Settlement], at: datetime) -> list[Payment]:
    """Write what reports of gateways, or transfers of a chain, do; gives the payments that changed.

    Statuses and events come first, then the money with its cases, then the sessions. A case is
    refunded at once where its merchant wants that.
    """
    requests = [
        TransitionRequest(
            payment=item.payment,
            trigger=item.decision.trigger,
            at=at,
            session=item.session,
            reason=item.decision.reason,
        )
        for item in decided
        if item.payment is not None and item.decision.trigger is not None
    ]
    changed = await apply_transitions(tx, requests)
    held = {item.capture.id for item in decided if item.capture and item.uncertain}
    for case in await settlements.save(tx, decided, at):
        if case.capture_id is not None and case.capture_id not in held:
            merchant_id = case.origin.merchant_id
            await auto_refund_case(tx, case.kind, case.id, case.capture_id, merchant_id)
    return changed


async def complete_selections(
    tx: Tx, opened: Sequence[tuple[Payment, Session]], now: datetime
) -> list[Payment]:
    """Make opening sessions their payments' own; those that they replace are to be closed."""
    if not opened:
        return []
    await sessions.mark_open(tx, [session for _, session in opened])
    moves = [
        TransitionRequest(payment=payment, trigger=PaymentTrigger.SELECT, at=now, session=session)
        for payment, session in opened
    ]
    changed = await apply_transitions(tx, moves)
    previous = [payment.session_id for payment, _ in opened if payment.session_id is not None]
    if previous:
        await sessions.mark_closing(tx, previous, now)
    return changed


def verbatim_note(capture: Capture | None) -> str:
    """Word for a case what the gateway says, where our minor units cannot; empty where they can."""
    if capture is None or capture.verbatim is None:
        return ""
    return f"the provider says {capture.verbatim}"


def _earlier(
    locked: LockedRecords, session: Session, report: SessionReport
) -> EarlierCapture | None:
    if report.capture is None:
        return None
    return locked.captures.get((session.quote.account_id, report.capture.reference))


def _decide(
    id_generator: IdGenerator,
    payment: Payment,
    session: Session,
    report: SessionReport,
    earlier: EarlierCapture | None,
    now: datetime,
) -> Settlement:
    decision = decide_settlement(payment, session, report, now)
    origin, capture = session_origin(payment, session.id), None
    if report.capture is not None:
        capture = SettledCapture(
            id=earlier.id if earlier else id_generator.new_id(),
            account_id=session.quote.account_id,
            reference=report.capture.reference,
            origin=origin,
            currency=report.capture.currency,
            amount_minor=report.capture.amount_minor,
            credited=decision.credited,
            adopted=earlier is not None,
        )
    return Settlement(
        decision=decision,
        origin=origin,
        payment=payment,
        session=session,
        capture=capture,
        case_id=id_generator.new_id(),
        note=verbatim_note(report.capture),
        uncertain=report.capture is not None and report.capture.uncertain,
    )
