"""Settlement decisions: what a gateway's report does to a payment and its session; pure."""

from dataclasses import dataclass
from datetime import datetime

from payintent.domain.case import CaseKind
from payintent.domain.gateway import Capture, GatewaySessionState, SessionReport
from payintent.domain.payment import TERMINAL, FailureReason, Payment, PaymentStatus, PaymentTrigger
from payintent.domain.session import Session, SessionStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlementDecision:
    """What to do: a transition, the end or close of the session, a case, or none of these."""

    trigger: PaymentTrigger | None = None
    reason: FailureReason | None = None
    outcome: str | None = None  # the outcome with which the session ends
    attempt: bool = False  # counts one more declined attempt
    close: bool = False  # the session is not wanted any more
    credited: bool = False
    case: CaseKind | None = None


#: The session is closed after so many declined attempts of its buyer.
ATTEMPTS_MAX = 3

#: Reported states that end a session without money.
_ENDED = {GatewaySessionState.DECLINED, GatewaySessionState.CANCELLED, GatewaySessionState.CLOSED}


def decide_settlement(
    payment: Payment, session: Session, report: SessionReport, now: datetime
) -> SettlementDecision:
    """Decide what a report does to a locked payment and session.

    An `opening` session whose report says more than that it exists must have become the
    payment's current session before (`completes_selection`). A capture must be a new one.
    """
    if report.state is GatewaySessionState.CAPTURED:
        return _judge_capture(payment, session, report)
    if report.state is GatewaySessionState.ATTEMPTED:
        last = session.declines + 1 >= ATTEMPTS_MAX
        return SettlementDecision(attempt=True, close=last and _is_paying(payment, session))
    if report.state in _ENDED:
        return _judge_end(payment, session, report, now)
    return SettlementDecision()


def completes_selection(payment: Payment, session: Session, report: SessionReport) -> bool:
    """Tell whether a report proves that the selection under way has succeeded.

    A callback may arrive before the gateway's answer, or our process may have died before the
    answer came. A buyer's cancellation of a payment that is still PENDING completes nothing.
    """
    proof = report.state in (GatewaySessionState.CAPTURED, GatewaySessionState.DECLINED)
    return session.status is SessionStatus.OPENING and payment.status in _SELECTABLE and proof


_SELECTABLE = (PaymentStatus.PENDING, PaymentStatus.PROCESSING)


def _judge_capture(payment: Payment, session: Session, report: SessionReport) -> SettlementDecision:
    outcome = report.state.value
    if payment.session_id != session.id and not _came_too_late(payment, session):
        return SettlementDecision(outcome=outcome, case=CaseKind.ORPHAN_CAPTURE)
    if payment.status is PaymentStatus.PROCESSING:
        if report.capture is not None and _is_exact(session, report.capture):
            return SettlementDecision(
                trigger=PaymentTrigger.CONFIRM, outcome=outcome, credited=True
            )
        return SettlementDecision(
            trigger=PaymentTrigger.FAIL,
            reason=FailureReason.AMOUNT_MISMATCH,
            outcome=outcome,
            case=CaseKind.AMOUNT_MISMATCH,
        )
    if payment.paid_at is not None:
        return SettlementDecision(outcome=outcome, case=CaseKind.DOUBLE_PAYMENT)
    return SettlementDecision(outcome=outcome, case=CaseKind.LATE_PAYMENT)


def _came_too_late(payment: Payment, session: Session) -> bool:
    """Tell whether the payment ended while this selection was still under way."""
    return session.status is SessionStatus.OPENING and payment.status in TERMINAL


def _judge_end(
    payment: Payment, session: Session, report: SessionReport, now: datetime
) -> SettlementDecision:
    outcome = report.state.value
    if _buyer_cancels_pending(payment, report) and not payment.is_past_expiry(now):
        return SettlementDecision(trigger=PaymentTrigger.BUYER_CANCEL, outcome=outcome)
    if not _is_paying(payment, session):
        return SettlementDecision(outcome=outcome)
    if report.state is GatewaySessionState.DECLINED or session.declines >= ATTEMPTS_MAX:
        reason = report.reason or FailureReason.DECLINED
        return SettlementDecision(trigger=PaymentTrigger.FAIL, reason=reason, outcome=outcome)
    if payment.is_past_expiry(now):
        return SettlementDecision(trigger=PaymentTrigger.EXPIRE, outcome=outcome)
    return SettlementDecision(outcome=outcome)  # the buyer may still select another method


def _is_paying(payment: Payment, session: Session) -> bool:
    return payment.session_id == session.id and payment.status is PaymentStatus.PROCESSING


def _buyer_cancels_pending(payment: Payment, report: SessionReport) -> bool:
    """Tell whether the buyer gives up a payment that waits for no session yet.

    This holds whatever the session's status: its gateway may have opened it without our knowing.
    """
    return report.state is GatewaySessionState.CANCELLED and payment.status is PaymentStatus.PENDING


def _is_exact(session: Session, capture: Capture) -> bool:
    return capture.equals(session.quote.total_minor, session.quote.price.currency)
