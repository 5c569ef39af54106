"""Decide whether received money settles a payment or opens a case.

A case is opened if the money arrives late, is a duplicate or a surplus, has the wrong amount or
token, or was captured by a session other than the payment's current session.
"""

from dataclasses import dataclass
from datetime import datetime

from payintent.cases.model import CaseKind
from payintent.gateways.port import FailureReason, GatewaySessionState, SessionReport
from payintent.payments.model import (
    OPEN,
    TERMINAL,
    Payment,
    PaymentStatus,
    PaymentTrigger,
    Session,
    SessionStatus,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlementDecision:
    trigger: PaymentTrigger | None = None
    reason: FailureReason | None = None
    outcome: str | None = None  # ends the session
    counts_attempt: bool = False  # a declined attempt
    closes_session: bool = False
    credited: bool = False
    case: CaseKind | None = None


ATTEMPTS_MAX = 3  # declined attempts before the session is closed
#: States that end a session without a payment.
_UNPAID_STATES = {
    GatewaySessionState.DECLINED,
    GatewaySessionState.CANCELLED,
    GatewaySessionState.CLOSED,
}


def decide_settlement(
    payment: Payment, session: Session, report: SessionReport, now: datetime
) -> SettlementDecision:
    """Decide how a report changes a payment and its session. Both must be locked.

    If the report completes the selection of an `opening` session (`completes_selection`), the
    session must already be the payment's current session. A reported capture must not have been
    stored yet.
    """
    if report.state is GatewaySessionState.CAPTURED:
        return _decide_capture(payment, session, report)
    if report.state is GatewaySessionState.ATTEMPTED:
        is_last_attempt = session.declines + 1 >= ATTEMPTS_MAX
        return SettlementDecision(
            counts_attempt=True,
            closes_session=is_last_attempt and _is_current_session(payment, session),
        )
    if report.state in _UNPAID_STATES:
        return _decide_end(payment, session, report, now)
    return SettlementDecision()


def completes_selection(payment: Payment, session: Session, report: SessionReport) -> bool:
    """Return whether a report completes the selection of an `opening` session.

    The payment must be open, and the report must prove that the gateway has opened the session. A
    callback may arrive before the gateway's response, or our process may have died before the
    response arrived. A cancellation by the buyer is not proof.
    """
    is_proof = report.state in {GatewaySessionState.CAPTURED, GatewaySessionState.DECLINED}
    return session.status is SessionStatus.OPENING and payment.status in OPEN and is_proof


def _decide_capture(
    payment: Payment, session: Session, report: SessionReport
) -> SettlementDecision:
    outcome = report.state.value
    if report.capture and report.capture.is_surplus:
        return SettlementDecision(outcome=outcome, case=CaseKind.SURPLUS)
    is_too_late = session.status is SessionStatus.OPENING and payment.status in TERMINAL
    if payment.session_id != session.id and not is_too_late:
        return SettlementDecision(outcome=outcome, case=CaseKind.ORPHAN_CAPTURE)
    if payment.status is PaymentStatus.PROCESSING:
        quote = session.quote
        if report.capture and report.capture.matches(quote.total_minor, quote.price.currency):
            return SettlementDecision(
                trigger=PaymentTrigger.CONFIRM, outcome=outcome, credited=True
            )
        return _decide_mismatch(session, report)
    if payment.paid_at is not None:
        return SettlementDecision(outcome=outcome, case=CaseKind.DOUBLE_PAYMENT)
    return SettlementDecision(outcome=outcome, case=CaseKind.LATE_PAYMENT)


def _decide_mismatch(session: Session, report: SessionReport) -> SettlementDecision:
    quote, capture = session.quote, report.capture
    is_token_mismatch = (
        quote.token is not None and capture is not None and capture.currency != quote.price.currency
    )
    return SettlementDecision(
        trigger=PaymentTrigger.FAIL,
        reason=FailureReason.TOKEN_MISMATCH if is_token_mismatch else FailureReason.AMOUNT_MISMATCH,
        outcome=report.state.value,
        case=CaseKind.TOKEN_MISMATCH if is_token_mismatch else CaseKind.AMOUNT_MISMATCH,
    )


def _decide_end(
    payment: Payment, session: Session, report: SessionReport, now: datetime
) -> SettlementDecision:
    outcome = report.state.value
    is_cancelled = report.state is GatewaySessionState.CANCELLED
    # The session may still be `opening`, because the gateway may have opened it without our
    # receiving the response.
    if is_cancelled and payment.status is PaymentStatus.PENDING and not payment.is_past_expiry(now):
        return SettlementDecision(trigger=PaymentTrigger.BUYER_CANCEL, outcome=outcome)
    if not _is_current_session(payment, session):
        return SettlementDecision(outcome=outcome)
    if report.state is GatewaySessionState.DECLINED or session.declines >= ATTEMPTS_MAX:
        reason = report.reason or FailureReason.DECLINED
        return SettlementDecision(trigger=PaymentTrigger.FAIL, reason=reason, outcome=outcome)
    if payment.is_past_expiry(now):
        return SettlementDecision(trigger=PaymentTrigger.EXPIRE, outcome=outcome)
    return SettlementDecision(outcome=outcome)  # the buyer can still select a method


def _is_current_session(payment: Payment, session: Session) -> bool:
    return payment.session_id == session.id and payment.status is PaymentStatus.PROCESSING
