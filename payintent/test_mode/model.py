"""Sessions of the test gateway, and the cards and amounts that trigger special behaviour."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from payintent.core import ids
from payintent.gateways.port import (
    Capture,
    DisputedFunds,
    DisputeReport,
    DisputeState,
    FailureReason,
    GatewayRefundState,
    GatewaySessionState,
    SessionReport,
)


class TestRefundBehaviour(StrEnum):
    IMMEDIATE = "at_once"
    PENDING = "pending"  # succeeds after `PENDING_REFUND_S`
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class TestCard:
    number: str
    title: str  # translation key of the outcome
    _: KW_ONLY
    decline_code: str | None = None
    is_paid_after_decline: bool = False
    requires_challenge: bool = False  # 3-D Secure, which the buyer approves or declines
    is_delayed: bool = False  # approved after `DECISION_S`
    extra_minor: int = 0
    captures_other_currency: bool = False
    callbacks: int = 1  # per result; if 0, the service must query the session
    is_disputed: bool = False
    refund_behaviour: TestRefundBehaviour = TestRefundBehaviour.IMMEDIATE


DECISION_S = 30  # also in the translations of `test_card_delayed`
PENDING_REFUND_S = 60  # also in the translations of `test_card_refund_pending`
APPROVED_CARD = "4242424242424242"
CHALLENGE_CARD = "4000002500003155"
CHALLENGE_FAILED = "authentication_failed"

_CARDS = (
    TestCard(APPROVED_CARD, "test_card_approved"),
    TestCard("4000000000000002", "test_card_declined", decline_code="card_declined"),
    TestCard("4000000000009995", "test_card_no_funds", decline_code="insufficient_funds"),
    TestCard("4000000000000069", "test_card_expired", decline_code="expired_card"),
    TestCard("4000000000000127", "test_card_wrong_cvc", decline_code="incorrect_cvc"),
    TestCard("4000000000000119", "test_card_error", decline_code="processing_error"),
    TestCard(CHALLENGE_CARD, "test_card_needs_challenge", requires_challenge=True),
    TestCard("4000009900000012", "test_card_delayed", is_delayed=True),
    TestCard("4000009900000020", "test_card_repeated", callbacks=3),
    TestCard("4000009900000046", "test_card_silent", callbacks=0),
    TestCard("4000009900000079", "test_card_too_much", extra_minor=1),
    TestCard("4000009900000087", "test_card_other_currency", captures_other_currency=True),
    TestCard(
        "4000009900000103",
        "test_card_paid_late",
        decline_code="card_declined",
        is_paid_after_decline=True,
    ),
    TestCard("4000000000000259", "test_card_disputed", is_disputed=True),
    TestCard(
        "4000009900000160",
        "test_card_refund_pending",
        refund_behaviour=TestRefundBehaviour.PENDING,
    ),
    TestCard(
        "4000009900000178",
        "test_card_refund_declined",
        refund_behaviour=TestRefundBehaviour.REFUSED,
    ),
)
TEST_CARDS: dict[str, TestCard] = {card.number: card for card in _CARDS}

#: Card numbers by decline code.
DECLINED_CARDS: dict[str, str] = {
    card.decline_code: card.number
    for card in _CARDS
    if card.decline_code is not None and not card.is_paid_after_decline
} | {CHALLENGE_FAILED: CHALLENGE_CARD}

#: Amounts, in minor units of any currency, that fail with every card.
REJECTED_MINOR = 66_601  # the gateway rejects the session
NO_RESPONSE_MINOR = 66_602  # the gateway does not respond when a session is opened
DECLINED_MINOR = {66_603: "card_declined", 66_604: "insufficient_funds"}


_FAILURE_REASONS = {
    "card_declined": FailureReason.DECLINED,
    "insufficient_funds": FailureReason.DECLINED,
    "expired_card": FailureReason.DECLINED,
    "incorrect_cvc": FailureReason.DECLINED,
    CHALLENGE_FAILED: FailureReason.DECLINED,
}
_DISPUTED_FUNDS = {
    DisputeState.OPEN: DisputedFunds.WITHDRAWN,
    DisputeState.WON: DisputedFunds.REINSTATED,
    DisputeState.LOST: DisputedFunds.WITHDRAWN,
}


class TestSessionStatus(StrEnum):
    OPEN = "open"
    CHALLENGE = "challenge"  # waiting for 3-D Secure
    DECIDING = "deciding"
    PAID = "paid"
    DECLINED = "declined"
    CANCELLED = "cancelled"  # by the buyer
    CLOSED = "closed"  # by the service, or expired


_AWAITING_BUYER = frozenset({TestSessionStatus.OPEN, TestSessionStatus.CHALLENGE})
_GATEWAY_STATES = {
    TestSessionStatus.OPEN: GatewaySessionState.OPEN,
    TestSessionStatus.CHALLENGE: GatewaySessionState.AUTHORISING,
    TestSessionStatus.DECIDING: GatewaySessionState.AUTHORISING,
    TestSessionStatus.PAID: GatewaySessionState.CAPTURED,
    TestSessionStatus.DECLINED: GatewaySessionState.DECLINED,
    TestSessionStatus.CANCELLED: GatewaySessionState.CANCELLED,
    TestSessionStatus.CLOSED: GatewaySessionState.CLOSED,
}


def make_card_page_url(pages_base: str, session_id: UUID) -> str:
    return f"{pages_base}/test/card/{ids.format_id(ids.SESSION, session_id)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestSession:
    """A session of the test gateway; amounts are in minor units."""

    session_id: UUID
    account_id: int
    amount_minor: int
    currency: str
    return_url: str
    expires_at: datetime
    status: TestSessionStatus = TestSessionStatus.OPEN
    card: str | None = None
    decline_code: str | None = None
    decides_at: datetime | None = None
    captured_minor: int | None = None
    captured_currency: str | None = None
    dispute: DisputeState | None = None

    def as_of(self, now: datetime) -> "TestSession":
        """Return the session as of `now`."""
        if self.status is TestSessionStatus.DECIDING and self.decides_at and self.decides_at <= now:
            return replace(self, status=TestSessionStatus.PAID)
        if self.status in _AWAITING_BUYER and self.expires_at <= now:
            return replace(self, status=TestSessionStatus.CLOSED)
        return self

    @property
    def capture(self) -> Capture | None:
        if self.status is not TestSessionStatus.PAID:
            return None
        return Capture(
            reference=f"test_{self.session_id.hex}",
            amount_minor=self.captured_minor or 0,
            currency=self.captured_currency or "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TestGatewayRefund:
    refund_id: UUID
    session_id: UUID
    amount_minor: int
    state: GatewayRefundState
    done_at: datetime | None = None  # when a pending refund succeeds

    def as_of(self, now: datetime) -> "TestGatewayRefund":
        if self.state is GatewayRefundState.PENDING and self.done_at and self.done_at <= now:
            return replace(self, state=GatewayRefundState.DONE)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCallback:
    """The content of a callback, which reports a session or a dispute."""

    id: str
    session_id: str
    report: SessionReport | None = None
    dispute: DisputeReport | None = None


def enter_test_card(session: TestSession, number: str, now: datetime) -> TestSession | None:
    """Enter a card. Returns None if it is not a test card or the session does not accept cards."""
    card = TEST_CARDS.get(number)
    if card is None or session.status is not TestSessionStatus.OPEN:
        return None
    session = _set_capture(replace(session, card=number), card)
    if code := DECLINED_MINOR.get(session.amount_minor):
        return _decline(session, code)
    if card.requires_challenge:
        return replace(session, status=TestSessionStatus.CHALLENGE)
    if card.is_delayed:
        decides_at = now + timedelta(seconds=DECISION_S)
        return replace(session, status=TestSessionStatus.DECIDING, decides_at=decides_at)
    if card.decline_code and not card.is_paid_after_decline:
        return _decline(session, card.decline_code)
    return replace(
        session,
        status=TestSessionStatus.PAID,
        decline_code=card.decline_code,
        dispute=DisputeState.OPEN if card.is_disputed else None,
    )


def complete_challenge(session: TestSession, *, approved: bool) -> TestSession | None:
    """Answer a 3-D Secure challenge. Returns None if no challenge is open."""
    if session.status is not TestSessionStatus.CHALLENGE:
        return None
    if approved:
        return replace(session, status=TestSessionStatus.PAID)
    return _decline(session, CHALLENGE_FAILED)


def cancel_for_buyer(session: TestSession) -> TestSession | None:
    """Cancel a session for the buyer. Returns None if it is not waiting for the buyer."""
    if session.status not in _AWAITING_BUYER:
        return None
    return replace(session, status=TestSessionStatus.CANCELLED)


def close_test_session(session: TestSession) -> TestSession:
    """Close a session if it is waiting for a card."""
    if session.status is not TestSessionStatus.OPEN:
        return session
    return replace(session, status=TestSessionStatus.CLOSED)


def set_dispute_state(session: TestSession, state: DisputeState) -> TestSession | None:
    """Open or end a session's dispute. Returns None if it is not paid or the dispute has ended."""
    if session.status is not TestSessionStatus.PAID:
        return None
    if session.dispute not in {None, DisputeState.OPEN} and session.dispute is not state:
        return None
    return replace(session, dispute=state)


def report_session(session: TestSession | None) -> SessionReport:
    if session is None:
        return SessionReport(state=GatewaySessionState.ABSENT)
    reason = None
    if session.status is TestSessionStatus.DECLINED:
        reason = classify_decline(session.decline_code or "")
    return SessionReport(
        state=_GATEWAY_STATES[session.status], capture=session.capture, reason=reason
    )


def classify_decline(code: str) -> FailureReason:
    return _FAILURE_REASONS.get(code, FailureReason.UNKNOWN)


def list_callbacks(session: TestSession) -> Sequence[TestCallback]:
    """Return a session's callbacks in order. Their ids depend only on the session's state."""
    if session.status in {*_AWAITING_BUYER, TestSessionStatus.DECIDING, TestSessionStatus.CLOSED}:
        return []
    card = TEST_CARDS.get(session.card or "")
    callbacks = [_build_callback(session, session.status, report_session(session))]
    if card and card.is_paid_after_decline and session.status is TestSessionStatus.PAID:
        declined_session = _decline(session, session.decline_code or "")
        callbacks.insert(
            0, _build_callback(session, declined_session.status, report_session(declined_session))
        )
    elif card:
        callbacks *= card.callbacks
    if session.dispute is not None and session.capture is not None:
        dispute = _build_dispute_report(session, session.capture, session.dispute)
        callbacks.append(_build_callback(session, f"dispute-{dispute.state}", dispute=dispute))
    return callbacks


def list_deposit_callbacks(
    session: TestSession, reports: Sequence[SessionReport]
) -> list[TestCallback]:
    """Return the callbacks of a session that is paid by transfers, in order."""
    return [
        _build_callback(session, f"deposit-{number}", item) for number, item in enumerate(reports)
    ]


def _build_callback(
    session: TestSession,
    name: str,
    report: SessionReport | None = None,
    dispute: DisputeReport | None = None,
) -> TestCallback:
    return TestCallback(
        id=f"{session.session_id.hex}-{name}",
        session_id=ids.format_id(ids.SESSION, session.session_id),
        report=report,
        dispute=dispute,
    )


def _build_dispute_report(
    session: TestSession, capture: Capture, state: DisputeState
) -> DisputeReport:
    return DisputeReport(
        reference=f"test_dispute_{session.session_id.hex}",
        capture=capture.reference,
        state=state,
        funds=_DISPUTED_FUNDS[state],
        amount_minor=capture.amount_minor,
        currency=capture.currency,
        reason="fraudulent",
    )


def _set_capture(session: TestSession, card: TestCard) -> TestSession:
    wrong_currency = "THB" if session.currency == "USD" else "USD"
    return replace(
        session,
        captured_minor=session.amount_minor + card.extra_minor,
        captured_currency=wrong_currency if card.captures_other_currency else session.currency,
    )


def _decline(session: TestSession, code: str) -> TestSession:
    return replace(session, status=TestSessionStatus.DECLINED, decline_code=code)
