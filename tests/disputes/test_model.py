"""The dispute model: reports can arrive in any order, and a dispute never regresses."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from payintent.disputes.model import (
    Dispute,
    apply_report,
    compute_undisputed_amount,
    needs_reopening,
)
from payintent.gateways.port import DisputedFunds, DisputeReport, DisputeState

BEGUN = Dispute(
    id=UUID(int=1),
    capture_id=UUID(int=2),
    case_id=UUID(int=3),
    account_id=1,
    reference="du_1",
    state=DisputeState.INQUIRY,
    funds=DisputedFunds.UNTOUCHED,
    amount_minor=100,
    currency="THB",
    reason="general",
    respond_by=None,
)


def report(state: DisputeState, funds: DisputedFunds = DisputedFunds.UNTOUCHED) -> DisputeReport:
    return DisputeReport(
        reference="du_1", capture="pi_1", state=state, funds=funds, amount_minor=100, currency="THB"
    )


@pytest.mark.parametrize("end", [DisputeState.WON, DisputeState.LOST])
def test_reports_in_any_order_lead_to_the_same_state(end: DisputeState) -> None:
    reports = [
        report(DisputeState.OPEN),
        report(DisputeState.OPEN, DisputedFunds.WITHDRAWN),
        report(DisputeState.UNDER_REVIEW),
        report(end, DisputedFunds.REINSTATED),
    ]
    for order in itertools.permutations(reports):
        dispute = BEGUN
        for item in order:
            dispute = apply_report(dispute, item)
        assert (dispute.state, dispute.funds) == (end, DisputedFunds.REINSTATED)


def test_the_amount_of_a_stale_report_still_counts() -> None:
    lost = replace(BEGUN, state=DisputeState.LOST)
    dispute = apply_report(lost, report(DisputeState.OPEN, DisputedFunds.WITHDRAWN))
    assert dispute == replace(lost, funds=DisputedFunds.WITHDRAWN)
    dispute = apply_report(dispute, report(DisputeState.OPEN, DisputedFunds.UNTOUCHED))
    assert dispute.funds is DisputedFunds.WITHDRAWN


def test_an_appealed_dispute_continues_to_its_new_outcome() -> None:
    due = datetime(2027, 1, 15, tzinfo=UTC)
    lost = replace(BEGUN, state=DisputeState.LOST)
    appealed = replace(report(DisputeState.OPEN), is_appeal=True, respond_by=due)
    dispute = apply_report(lost, appealed)
    assert (dispute.state, dispute.respond_by) == (DisputeState.OPEN, due)
    assert needs_reopening(lost, dispute)
    reviewed = apply_report(dispute, replace(report(DisputeState.UNDER_REVIEW), is_appeal=True))
    assert apply_report(reviewed, appealed) == reviewed  # stale
    won = apply_report(reviewed, report(DisputeState.WON))
    assert won.state is DisputeState.WON
    assert apply_report(won, appealed) == won  # only a lost dispute can be appealed


def test_an_appeal_that_is_first_reported_under_review_also_needs_attention() -> None:
    lost = replace(BEGUN, state=DisputeState.LOST)
    reviewed = apply_report(lost, replace(report(DisputeState.UNDER_REVIEW), is_appeal=True))
    assert reviewed.state is DisputeState.UNDER_REVIEW
    assert needs_reopening(lost, reviewed)


def test_a_report_without_a_reason_or_deadline_keeps_the_known_values() -> None:
    due = datetime(2026, 12, 1, tzinfo=UTC)
    dispute = apply_report(replace(BEGUN, respond_by=due), report(DisputeState.OPEN))
    assert (dispute.reason, dispute.respond_by) == ("general", due)


@pytest.mark.parametrize("state", DisputeState)
def test_an_open_or_lost_dispute_holds_its_amount(state: DisputeState) -> None:
    holds = state in {DisputeState.OPEN, DisputeState.UNDER_REVIEW, DisputeState.LOST}
    assert replace(BEGUN, state=state).held_minor == (100 if holds else 0)


def test_the_refundable_amount_excludes_disputed_money() -> None:
    amount = Decimal("10.00")
    assert compute_undisputed_amount(amount, amount, 1100, 550) == Decimal("5.00")
    assert compute_undisputed_amount(amount, Decimal("2.00"), 1100, 1000) == Decimal("2.00")
    assert compute_undisputed_amount(amount, amount, 1100, 0) == 0
    assert compute_undisputed_amount(amount, amount, 0, 0) == amount
