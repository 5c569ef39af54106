"""The on-chain rules: what final logs mean, and when sessions without a log end."""

from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from payintent.gateways.port import FailureReason, GatewaySessionState, SessionReport
from payintent.onchain.settlement_rules import (
    CASE_KINDS,
    OUTAGE_MAX,
    POSTED_TRANSACTION_HOLD,
    ExpectedTransfer,
    MismatchedTransfer,
    OnchainEvidence,
    PostedTransaction,
    PostedTransactionState,
    TransferDetails,
    TransferDisposition,
    classify_transfer,
    decide_onchain_session,
    decide_transfer,
    is_exact_transfer,
)
from payintent.payment_sessions.settlement_rules import SettlementDecision
from payintent.payments.model import RETRY_GRACE, PaymentStatus, PaymentTrigger
from tests.support.sample_values import NOW, OTHER_SESSION_ID, SESSION_ID, a_payment, a_session

TOKEN, OTHER_TOKEN = b"t" * 20, b"o" * 20
RECEIVER, STRANGER = b"r" * 20, b"s" * 20
BILL = ExpectedTransfer(token=TOKEN, amount=100, receiver=RECEIVER)
EXACT = TransferDetails(1, TOKEN, 100, RECEIVER)
SECOND = timedelta(seconds=1)
DEADLINE = NOW + timedelta(minutes=30)

OPEN = SessionReport(state=GatewaySessionState.OPEN)
AUTHORISING = SessionReport(state=GatewaySessionState.AUTHORISING)
CLOSED = SessionReport(state=GatewaySessionState.CLOSED)


def failed(reason: FailureReason) -> SessionReport:
    return SessionReport(state=GatewaySessionState.DECLINED, reason=reason)


def processing(**changes: Any) -> Any:
    return a_payment(status=PaymentStatus.PROCESSING, session_id=SESSION_ID, **changes)


def test_an_exact_log_of_an_open_session_is_credited() -> None:
    assert classify_transfer(EXACT, BILL, processing(), a_session()) is TransferDisposition.CREDITED


@pytest.mark.parametrize(
    ("transfer", "disposition"),
    [
        (TransferDetails(1, TOKEN, 99, RECEIVER), TransferDisposition.UNDERPAID),
        (TransferDetails(1, TOKEN, 101, RECEIVER), TransferDisposition.OVERPAID),
        (TransferDetails(1, OTHER_TOKEN, 100, RECEIVER), TransferDisposition.WRONG_TOKEN),
        (TransferDetails(1, TOKEN, 100, STRANGER), TransferDisposition.WRONG_RECEIVER),
        (TransferDetails(2, TOKEN, 100, RECEIVER), TransferDisposition.UNKNOWN_UUID),
    ],
)
def test_a_transfer_that_does_not_match_the_bill_is_not_credited(
    transfer: TransferDetails, disposition: TransferDisposition
) -> None:
    assert classify_transfer(transfer, BILL, processing(), a_session()) is disposition
    assert not (is_exact_transfer(transfer, BILL) and transfer.account_id == EXACT.account_id)


def test_a_transfer_without_a_bill_is_classified_as_an_unknown_uuid() -> None:
    assert classify_transfer(EXACT, None, None, None) is TransferDisposition.UNKNOWN_UUID


AMOUNTS = (99, 100, 101)
STATUSES = [status for status in PaymentStatus if status is not PaymentStatus.PENDING]


@pytest.mark.parametrize(("status", "amount"), list(product(STATUSES, AMOUNTS)))
def test_the_payment_status_takes_precedence_over_the_amount(
    status: PaymentStatus, amount: int
) -> None:
    paid_at = (
        NOW
        if status in {PaymentStatus.PAID, PaymentStatus.PARTIALLY_REFUNDED, PaymentStatus.REFUNDED}
        else None
    )
    payment = processing(paid_at=paid_at)
    payment = replace(payment, status=status)
    disposition = classify_transfer(replace(EXACT, amount=amount), BILL, payment, a_session())
    if paid_at is not None:
        assert disposition is TransferDisposition.DUPLICATE
    elif status is PaymentStatus.PROCESSING:
        assert (disposition is TransferDisposition.CREDITED) == (amount == 100)
    else:
        assert disposition is TransferDisposition.LATE


@pytest.mark.parametrize("status", STATUSES)
def test_a_transfer_to_a_replaced_session_is_classified_as_closed_session(
    status: PaymentStatus,
) -> None:
    payment = replace(a_payment(session_id=OTHER_SESSION_ID), status=status)
    assert (
        classify_transfer(EXACT, BILL, payment, a_session()) is TransferDisposition.CLOSED_SESSION
    )


def test_every_disposition_except_credited_opens_a_case() -> None:
    assert set(TransferDisposition) - set(CASE_KINDS) == {TransferDisposition.CREDITED}


@pytest.mark.parametrize("disposition", TransferDisposition)
def test_a_transfer_either_captures_its_session_or_only_opens_a_case(
    disposition: TransferDisposition,
) -> None:
    decision = decide_transfer(disposition)
    if disposition is TransferDisposition.CREDITED:
        assert (decision.trigger, decision.outcome) == (PaymentTrigger.CONFIRM, "captured")
        assert decision.credited
        assert decision.case is None
    else:
        assert decision == SettlementDecision(case=CASE_KINDS[disposition])


def evidence(**changes: Any) -> OnchainEvidence:
    values: dict[str, Any] = {
        "now": NOW,
        "deadline": DEADLINE,
        "window_at": None,
        "final_at": NOW,
        "is_exact_pending": False,
        "is_exact_gone": False,
    }
    return OnchainEvidence(**(values | changes))


def evidence_after(seconds: float = 1, **changes: Any) -> OnchainEvidence:
    """Return evidence past the deadline, with final blocks that are also past it."""
    now = DEADLINE + timedelta(seconds=seconds)
    return evidence(**({"now": now, "final_at": now} | changes))


def posted(state: PostedTransactionState, **changes: Any) -> PostedTransaction:
    values: dict[str, Any] = {
        "state": state,
        "reason": "",
        "final": False,
        "posted_at": NOW - SECOND,
        "settled_at": None,
    }
    return PostedTransaction(**(values | changes))


def revert(reason: str, since: timedelta) -> PostedTransaction:
    return posted(
        PostedTransactionState.REVERTED, reason=reason, final=True, settled_at=NOW - since
    )


def mismatch(
    disposition: TransferDisposition, since: timedelta, *, posted: bool
) -> MismatchedTransfer:
    return MismatchedTransfer(disposition=disposition, was_posted=posted, final_at=NOW - since)


def test_a_session_without_evidence_stays_open_before_the_deadline() -> None:
    assert decide_onchain_session(evidence()) == OPEN
    assert decide_onchain_session(evidence(final_at=None)) == OPEN


@pytest.mark.parametrize("at", [NOW, DEADLINE, DEADLINE + OUTAGE_MAX * 30])
def test_an_exact_sighting_takes_precedence_over_all_other_evidence(at: Any) -> None:
    contrary = {
        "posted_transactions": (revert("expired", RETRY_GRACE),),
        "mismatches": (mismatch(TransferDisposition.UNDERPAID, RETRY_GRACE, posted=True),),
        "is_exact_gone": True,
    }
    facts = evidence(now=at, final_at=at, is_exact_pending=True, **contrary)
    assert decide_onchain_session(facts) == AUTHORISING


@pytest.mark.parametrize(
    "state",
    [PostedTransactionState.UNKNOWN, PostedTransactionState.PENDING, PostedTransactionState.MINED],
)
def test_a_recent_hash_delays_a_change_of_method(
    state: PostedTransactionState,
) -> None:
    assert decide_onchain_session(evidence(posted_transactions=(posted(state),))) == AUTHORISING
    assert (
        decide_onchain_session(
            evidence(posted_transactions=(posted(state, posted_at=NOW - POSTED_TRANSACTION_HOLD),))
        )
        == OPEN
    )


def test_a_final_revert_because_of_the_deadline_fails_the_session_immediately() -> None:
    facts = evidence(posted_transactions=(revert("expired", timedelta(0)),))
    assert decide_onchain_session(facts) == failed(FailureReason.TX_REVERTED)


def test_a_different_revert_fails_the_session_after_a_grace_period_without_a_retry() -> None:
    early = revert("transfer", RETRY_GRACE - SECOND)
    late = revert("transfer", RETRY_GRACE)
    assert decide_onchain_session(evidence(posted_transactions=(early,))) == OPEN
    assert decide_onchain_session(evidence(posted_transactions=(late,))) == failed(
        FailureReason.TX_REVERTED
    )
    assert (
        decide_onchain_session(
            evidence(posted_transactions=(late, posted(PostedTransactionState.PENDING)))
        )
        == AUTHORISING
    )


def test_a_revert_that_is_not_final_does_not_end_the_session() -> None:
    reverted = posted(
        PostedTransactionState.REVERTED, reason="expired", posted_at=NOW - POSTED_TRANSACTION_HOLD
    )
    assert decide_onchain_session(evidence(posted_transactions=(reverted,))) == OPEN


@pytest.mark.parametrize(
    ("disposition", "reason"),
    [
        (TransferDisposition.UNDERPAID, FailureReason.AMOUNT_MISMATCH),
        (TransferDisposition.OVERPAID, FailureReason.AMOUNT_MISMATCH),
        (TransferDisposition.WRONG_TOKEN, FailureReason.TOKEN_MISMATCH),
    ],
)
def test_a_mismatch_fails_a_payment_early_only_if_the_buyer_posted_it(
    disposition: TransferDisposition, reason: FailureReason
) -> None:
    def decide(since: timedelta, *, posted: bool) -> SessionReport:
        return decide_onchain_session(
            evidence(mismatches=(mismatch(disposition, since, posted=posted),))
        )

    assert decide(RETRY_GRACE, posted=True) == failed(reason)
    assert decide(RETRY_GRACE - SECOND, posted=True) == OPEN
    assert decide(RETRY_GRACE * 100, posted=False) == OPEN  # a copycat cannot end a payment
    facts = evidence_after(mismatches=(mismatch(disposition, SECOND, posted=False),))
    assert decide_onchain_session(facts) == failed(reason)


def test_a_session_waits_indefinitely_for_an_unreadable_chain() -> None:
    mismatches = {"mismatches": (mismatch(TransferDisposition.OVERPAID, SECOND, posted=False),)}
    for unread in ({"final_at": DEADLINE - SECOND}, {"final_at": None}):
        for seconds in (1, OUTAGE_MAX.total_seconds() * 30):
            assert decide_onchain_session(evidence_after(seconds, **unread)) == AUTHORISING
            assert (
                decide_onchain_session(evidence_after(seconds, **unread, **mismatches))
                == AUTHORISING
            )
    assert decide_onchain_session(evidence_after(**mismatches)) == failed(
        FailureReason.AMOUNT_MISMATCH
    )


def test_a_session_expires_when_the_final_blocks_are_past_the_deadline() -> None:
    assert decide_onchain_session(evidence_after()) == CLOSED
    assert (
        decide_onchain_session(evidence_after(final_at=DEADLINE)) == AUTHORISING
    )  # another block could have the same timestamp


def test_a_session_expires_immediately_if_two_endpoints_have_shown_the_blocks() -> None:
    early = {"final_at": NOW}
    assert decide_onchain_session(evidence_after(**early)) == AUTHORISING
    assert (
        decide_onchain_session(evidence_after(**early, window_at=DEADLINE)) == AUTHORISING
    )  # another block could have the same timestamp
    assert decide_onchain_session(evidence_after(**early, window_at=DEADLINE + SECOND)) == CLOSED


@pytest.mark.parametrize(
    "trace",
    [
        {"posted_transactions": (posted(PostedTransactionState.UNKNOWN),)},
        {"is_exact_gone": True},
        {"mismatches": (mismatch(TransferDisposition.UNDERPAID, SECOND, posted=False),)},
    ],
)
def test_a_session_with_any_evidence_waits_for_the_final_blocks(trace: dict[str, Any]) -> None:
    assert (
        decide_onchain_session(evidence_after(final_at=NOW, window_at=DEADLINE + SECOND, **trace))
        == AUTHORISING
    )
    assert decide_onchain_session(evidence_after(**trace)).state is GatewaySessionState.DECLINED


@pytest.mark.parametrize("state", [PostedTransactionState.UNKNOWN, PostedTransactionState.PENDING])
def test_a_transaction_that_was_never_mined_is_an_onchain_timeout(
    state: PostedTransactionState,
) -> None:
    assert decide_onchain_session(evidence_after(posted_transactions=(posted(state),))) == failed(
        FailureReason.ONCHAIN_TIMEOUT
    )


def test_an_exact_payment_that_disappeared_is_an_onchain_timeout() -> None:
    assert decide_onchain_session(evidence_after(is_exact_gone=True)) == failed(
        FailureReason.ONCHAIN_TIMEOUT
    )


def test_a_mismatch_takes_precedence_over_a_revert_and_a_revert_over_a_timeout() -> None:
    reverted = (revert("transfer", SECOND), posted(PostedTransactionState.UNKNOWN))
    assert decide_onchain_session(evidence_after(posted_transactions=reverted)) == failed(
        FailureReason.TX_REVERTED
    )
    mismatches = (mismatch(TransferDisposition.WRONG_TOKEN, SECOND, posted=False),)
    facts = evidence_after(posted_transactions=reverted, mismatches=mismatches)
    assert decide_onchain_session(facts) == failed(FailureReason.TOKEN_MISMATCH)
