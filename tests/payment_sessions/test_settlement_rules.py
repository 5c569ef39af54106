"""The effect of a provider's report in every possible state, stated as rules."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from payintent.gateways.port import Capture, FailureReason, GatewaySessionState, SessionReport
from payintent.payment_sessions.settlement_rules import (
    SettlementDecision,
    completes_selection,
    decide_settlement,
)
from payintent.payments.model import Payment, PaymentStatus, PaymentTrigger, Session, SessionStatus
from tests.payments.test_model import EXPECTED
from tests.support.sample_values import (
    NOW,
    OTHER_SESSION_ID,
    RECEIPT_ID,
    SESSION_ID,
    TOTAL_MINOR,
    a_payment,
    a_session,
)

ENDS_WITHOUT_MONEY = {"declined", "cancelled", "closed"}
SAYS_NOTHING = {"open", "authorising", "absent"}
ATTEMPTS = (0, 1, 2, 3)  # attempts that were declined before
PAID_ONCE = {"PAID", "PARTIALLY_REFUNDED", "REFUNDED"}
ENDED_UNPAID = {"FAILED", "EXPIRED", "CANCELLED"}


def _captured(amount_minor: int, currency: str) -> SessionReport:
    capture = Capture(reference="cap-1", amount_minor=amount_minor, currency=currency)
    return SessionReport(state=GatewaySessionState.CAPTURED, capture=capture)


EXACT = _captured(TOTAL_MINOR, "THB")
INEXACT = (
    _captured(TOTAL_MINOR - 1, "THB"),
    _captured(TOTAL_MINOR + 1, "THB"),
    _captured(TOTAL_MINOR, "USD"),
    _captured(0, "THB"),
    SessionReport(state=GatewaySessionState.CAPTURED),
)
OTHERS = (
    *(
        SessionReport(state=state)
        for state in GatewaySessionState
        if state is not GatewaySessionState.CAPTURED
    ),
    SessionReport(state=GatewaySessionState.DECLINED, reason=FailureReason.UNKNOWN),
)


@dataclass(frozen=True)
class Case:
    payment: Payment
    session: Session
    report: SessionReport
    current: bool
    elapsed: bool

    @property
    def said(self) -> str:
        return self.report.state.value

    @property
    def status(self) -> str:
        return self.payment.status.value

    @property
    def under_way(self) -> bool:
        """The payment ended before this selection did."""
        ended = self.status in PAID_ONCE | ENDED_UNPAID
        return ended and self.session.status is SessionStatus.OPENING

    @property
    def live(self) -> bool:
        """The payment is waiting for this session."""
        return self.current and self.status == "PROCESSING"

    @property
    def tried(self) -> bool:
        """The buyer has used all attempts."""
        return self.session.declines >= 3

    @property
    def exact(self) -> bool:
        return self.report is EXACT

    @property
    def verdict(self) -> SettlementDecision:
        return decide_settlement(self.payment, self.session, self.report, NOW)


def _cases() -> Iterator[Case]:
    relations = (SESSION_ID, OTHER_SESSION_ID, None)
    reports = (EXACT, *INEXACT, *OTHERS)
    for status, life, relation, report, elapsed, declines in product(
        PaymentStatus, SessionStatus, relations, reports, (True, False), ATTEMPTS
    ):
        if (status is PaymentStatus.PENDING and relation is not None) or (
            status not in {PaymentStatus.PENDING, PaymentStatus.EXPIRED, PaymentStatus.CANCELLED}
            and relation is None
        ):
            continue  # PENDING: no successful selection; a report implies a selection
        current = relation == SESSION_ID
        if current and life is SessionStatus.OPENING:
            continue  # an open session is the current session
        paid = {"paid_at": NOW, "receipt_id": RECEIPT_ID} if status.value in PAID_ONCE else {}
        ago = timedelta(seconds=-1 if elapsed else 1)
        payment = a_payment(status=status, session_id=relation, expires_at=NOW + ago, **paid)
        yield Case(payment, a_session(status=life, declines=declines), report, current, elapsed)


CASES = list(_cases())


def _where(**filters: Any) -> list[Case]:
    cases = [
        case
        for case in CASES
        if all(getattr(case, name) == value for name, value in filters.items())
    ]
    assert cases
    return cases


def test_every_situation_is_covered() -> None:
    assert len(CASES) > 6000


def test_a_verdict_uses_only_transitions_in_the_table() -> None:
    for case in CASES:
        trigger = case.verdict.trigger
        assert trigger is None or (case.status, trigger.value) in EXPECTED, case


def test_an_ended_payment_never_changes_its_status() -> None:
    for case in CASES:
        if case.status not in {"PENDING", "PROCESSING"}:
            assert case.verdict.trigger is None, case


def test_only_an_exact_capture_on_the_current_session_confirms_a_processing_payment() -> None:
    for case in CASES:
        confirms = case.exact and case.current and case.status == "PROCESSING"
        assert (case.verdict.trigger == "confirm") is confirms, case
        assert case.verdict.credited is confirms, case


def test_every_capture_is_credited_or_opens_a_case_and_no_other_report_does() -> None:
    for case in CASES:
        verdict = case.verdict
        assert (verdict.credited + (verdict.case is not None)) == (case.said == "captured"), case


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        ({"current": False, "under_way": False}, "ORPHAN_CAPTURE"),
        *(
            ({"current": False, "under_way": True, "status": item}, "DOUBLE_PAYMENT")
            for item in sorted(PAID_ONCE)
        ),
        *(
            ({"current": False, "under_way": True, "status": item}, "LATE_PAYMENT")
            for item in sorted(ENDED_UNPAID)
        ),
        *(({"current": True, "status": item}, "DOUBLE_PAYMENT") for item in sorted(PAID_ONCE)),
        *(({"current": True, "status": item}, "LATE_PAYMENT") for item in sorted(ENDED_UNPAID)),
        ({"current": True, "status": "PROCESSING", "exact": False}, "AMOUNT_MISMATCH"),
    ],
)
def test_an_uncredited_capture_opens_a_case_of_the_right_kind(
    wanted: dict[str, Any], kind: str
) -> None:
    for case in _where(said="captured", **wanted):
        assert case.verdict.case == kind, case


def test_a_processing_payment_fails_only_after_declines_or_a_different_amount() -> None:
    for case in CASES:
        other_money = case.said == "captured" and not case.exact
        ends = case.said in ENDS_WITHOUT_MONEY and case.tried  # reported as declined in every case
        fails = case.live and (case.said == "declined" or other_money or ends)
        assert (case.verdict.trigger == "fail") is fails, case
        reason = None
        if fails:
            reason = "AMOUNT_MISMATCH" if other_money else case.report.reason or "DECLINED"
        assert case.verdict.reason == reason, case


def test_a_closed_or_abandoned_session_expires_its_payment_only_after_the_deadline() -> None:
    for case in CASES:
        left = case.said in {"closed", "cancelled"} and not case.tried
        expires = case.live and case.elapsed and left
        assert (case.verdict.trigger == "expire") is expires, case


def test_a_buyer_can_cancel_a_pending_payment_at_the_gateway_before_the_deadline() -> None:
    for case in CASES:
        cancels = (
            case.said == "cancelled"
            and case.status == "PENDING"
            and not case.elapsed  # then it expires with an event
        )
        assert (case.verdict.trigger == "buyer_cancel") is cancels, case


def test_a_session_ends_with_every_final_report_and_no_other() -> None:
    for case in CASES:
        last = case.said in ENDS_WITHOUT_MONEY | {"captured"}
        assert case.verdict.outcome == (case.said if last else None), case


def test_a_report_that_is_not_final_has_no_effect() -> None:
    for case in CASES:
        if case.said in SAYS_NOTHING:
            assert case.verdict == SettlementDecision(), case


def test_in_every_state_a_declined_attempt_is_only_counted() -> None:
    for case in _where(said="attempted"):
        assert replace(case.verdict, closes_session=False) == SettlementDecision(
            counts_attempt=True
        ), case


def test_no_other_report_counts_an_attempt_or_closes_the_session() -> None:
    for case in CASES:
        if case.said != "attempted":
            assert (case.verdict.counts_attempt, case.verdict.closes_session) == (False, False), (
                case
            )


def test_the_third_declined_attempt_closes_the_current_session() -> None:
    for case in _where(said="attempted"):
        third = case.live and case.session.declines >= 2
        assert case.verdict.closes_session is third, case


@pytest.mark.parametrize("life", SessionStatus)
def test_three_declined_attempts_and_the_close_fail_the_payment_as_declined(
    life: SessionStatus,
) -> None:
    payment = a_payment(status=PaymentStatus.PROCESSING, session_id=SESSION_ID)
    session = a_session(status=life)
    verdicts = []
    for _ in range(3):
        verdicts.append(
            decide_settlement(
                payment, session, SessionReport(state=GatewaySessionState.ATTEMPTED), NOW
            )
        )
        session = replace(session, declines=session.declines + 1)
    assert [verdict.closes_session for verdict in verdicts] == [False, False, True]
    assert [verdict.trigger for verdict in verdicts] == [None] * 3
    closed = decide_settlement(
        payment, session, SessionReport(state=GatewaySessionState.CLOSED), NOW
    )
    assert (closed.trigger, closed.reason, closed.outcome) == ("fail", "DECLINED", "closed")


def test_a_capture_takes_precedence_over_any_number_of_declined_attempts() -> None:
    for case in _where(live=True, tried=True, exact=True):
        assert case.verdict == SettlementDecision(
            trigger=PaymentTrigger.CONFIRM, outcome="captured", credited=True
        )


def test_a_capture_or_decline_completes_a_selection_that_is_opening() -> None:
    for case in CASES:
        completes = (
            case.session.status is SessionStatus.OPENING
            and case.status in {"PENDING", "PROCESSING"}
            and case.said in {"captured", "declined"}
        )
        assert completes_selection(case.payment, case.session, case.report) is completes, case


def test_a_completed_selection_is_treated_as_the_current_session() -> None:
    for case in CASES:
        if completes_selection(case.payment, case.session, case.report):
            payment = replace(case.payment, status=PaymentStatus.PROCESSING, session_id=SESSION_ID)
            verdict = decide_settlement(
                payment, replace(case.session, status=SessionStatus.OPEN), case.report, NOW
            )
            assert verdict.trigger == ("confirm" if case.exact else "fail"), case
