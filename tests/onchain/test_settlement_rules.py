"""The on-chain tables: the meaning of final logs, and the end of sessions without a log."""

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
from tests.support.making import NOW, OTHER_SESSION_ID, SESSION_ID, a_payment, a_session

TOKEN, OTHER_TOKEN = b"t" * 20, b"o" * 20
RECEIVER, STRANGER = b"r" * 20, b"s" * 20
BILL = ExpectedTransfer(token=TOKEN, amount=100, receiver=RECEIVER)
EXACT = TransferDetails(1, TOKEN, 100, RECEIVER)
SECOND = timedelta(seconds=1)
DEADLINE = NOW + timedelta(minutes=30)

OPEN = SessionReport(state=GatewaySessionState.OPEN)
UNDER_WAY = SessionReport(state=GatewaySessionState.AUTHORISING)
NOTHING = SessionReport(state=GatewaySessionState.CLOSED)


def failed(reason: FailureReason) -> SessionReport:
    return SessionReport(state=GatewaySessionState.DECLINED, reason=reason)


def processing(**changes: Any) -> Any:
    return a_payment(status=PaymentStatus.PROCESSING, session_id=SESSION_ID, **changes)


def test_an_exact_log_of_an_open_session_is_credited() -> None:
    assert classify_transfer(EXACT, BILL, processing(), a_session()) is TransferDisposition.CREDITED


@pytest.mark.parametrize(
    ("paid", "disposition"),
    [
        (TransferDetails(1, TOKEN, 99, RECEIVER), TransferDisposition.UNDERPAID),
        (TransferDetails(1, TOKEN, 101, RECEIVER), TransferDisposition.OVERPAID),
        (TransferDetails(1, OTHER_TOKEN, 100, RECEIVER), TransferDisposition.WRONG_TOKEN),
        (TransferDetails(1, TOKEN, 100, STRANGER), TransferDisposition.WRONG_RECEIVER),
        (TransferDetails(2, TOKEN, 100, RECEIVER), TransferDisposition.UNKNOWN_UUID),
    ],
)
def test_what_is_not_the_bill_is_never_credited(
    paid: TransferDetails, disposition: TransferDisposition
) -> None:
    assert classify_transfer(paid, BILL, processing(), a_session()) is disposition
    assert not (is_exact_transfer(paid, BILL) and paid.account_id == EXACT.account_id)


def test_a_uuid_that_nobody_knows_is_a_case_of_nobody() -> None:
    assert classify_transfer(EXACT, None, None, None) is TransferDisposition.UNKNOWN_UUID


AMOUNTS = (99, 100, 101)
STATUSES = [one for one in PaymentStatus if one is not PaymentStatus.PENDING]


@pytest.mark.parametrize(("status", "amount"), list(product(STATUSES, AMOUNTS)))
def test_the_state_of_the_payment_comes_before_the_amount(
    status: PaymentStatus, amount: int
) -> None:
    paid_at = (
        NOW
        if status in {PaymentStatus.PAID, PaymentStatus.PARTIALLY_REFUNDED, PaymentStatus.REFUNDED}
        else None
    )
    payment = processing(paid_at=paid_at)
    payment = replace(payment, status=status)
    found = classify_transfer(replace(EXACT, amount=amount), BILL, payment, a_session())
    if paid_at is not None:
        assert found is TransferDisposition.DUPLICATE
    elif status is PaymentStatus.PROCESSING:
        assert (found is TransferDisposition.CREDITED) == (amount == 100)
    else:
        assert found is TransferDisposition.LATE


@pytest.mark.parametrize("status", STATUSES)
def test_a_replaced_session_never_touches_its_payment(status: PaymentStatus) -> None:
    payment = replace(a_payment(session_id=OTHER_SESSION_ID), status=status)
    assert (
        classify_transfer(EXACT, BILL, payment, a_session()) is TransferDisposition.CLOSED_SESSION
    )


def test_whatever_is_not_credited_is_a_case() -> None:
    assert set(TransferDisposition) - set(CASE_KINDS) == {TransferDisposition.CREDITED}


@pytest.mark.parametrize("disposition", TransferDisposition)
def test_a_transfer_pays_and_ends_its_session_or_is_a_case_and_changes_nothing(
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


def after(seconds: float = 1, **changes: Any) -> OnchainEvidence:
    """Evidence past the deadline, with final blocks that are also past it."""
    now = DEADLINE + timedelta(seconds=seconds)
    return evidence(**({"now": now, "final_at": now} | changes))


def hint(state: PostedTransactionState, **changes: Any) -> PostedTransaction:
    values: dict[str, Any] = {
        "state": state,
        "reason": "",
        "final": False,
        "posted_at": NOW - SECOND,
        "settled_at": None,
    }
    return PostedTransaction(**(values | changes))


def revert(reason: str, since: timedelta) -> PostedTransaction:
    return hint(PostedTransactionState.REVERTED, reason=reason, final=True, settled_at=NOW - since)


def mismatch(
    disposition: TransferDisposition, since: timedelta, *, posted: bool
) -> MismatchedTransfer:
    return MismatchedTransfer(disposition=disposition, was_posted=posted, final_at=NOW - since)


def test_nothing_is_decided_before_the_deadline_where_nothing_happened() -> None:
    assert decide_onchain_session(evidence()) == OPEN
    assert decide_onchain_session(evidence(final_at=None)) == OPEN


@pytest.mark.parametrize("at", [NOW, DEADLINE, DEADLINE + OUTAGE_MAX * 30])
def test_an_exact_sighting_is_waited_for_whatever_else_is_known(at: Any) -> None:
    worst = {
        "posted_transactions": (revert("expired", RETRY_GRACE),),
        "mismatches": (mismatch(TransferDisposition.UNDERPAID, RETRY_GRACE, posted=True),),
        "is_exact_gone": True,
    }
    told = evidence(now=at, final_at=at, is_exact_pending=True, **worst)
    assert decide_onchain_session(told) == UNDER_WAY


@pytest.mark.parametrize(
    "state",
    [PostedTransactionState.UNKNOWN, PostedTransactionState.PENDING, PostedTransactionState.MINED],
)
def test_a_fresh_hash_holds_up_a_change_of_method_for_a_while(
    state: PostedTransactionState,
) -> None:
    assert decide_onchain_session(evidence(posted_transactions=(hint(state),))) == UNDER_WAY
    assert (
        decide_onchain_session(
            evidence(posted_transactions=(hint(state, posted_at=NOW - POSTED_TRANSACTION_HOLD),))
        )
        == OPEN
    )


def test_a_final_revert_by_the_deadline_fails_at_once() -> None:
    told = evidence(posted_transactions=(revert("expired", timedelta(0)),))
    assert decide_onchain_session(told) == failed(FailureReason.TX_REVERTED)


def test_another_revert_fails_after_a_second_thought_without_another_attempt() -> None:
    early = revert("transfer", RETRY_GRACE - SECOND)
    late = revert("transfer", RETRY_GRACE)
    assert decide_onchain_session(evidence(posted_transactions=(early,))) == OPEN
    assert decide_onchain_session(evidence(posted_transactions=(late,))) == failed(
        FailureReason.TX_REVERTED
    )
    assert (
        decide_onchain_session(
            evidence(posted_transactions=(late, hint(PostedTransactionState.PENDING)))
        )
        == UNDER_WAY
    )


def test_a_revert_that_is_not_final_ends_nothing() -> None:
    told = hint(
        PostedTransactionState.REVERTED, reason="expired", posted_at=NOW - POSTED_TRANSACTION_HOLD
    )
    assert decide_onchain_session(evidence(posted_transactions=(told,))) == OPEN


@pytest.mark.parametrize(
    ("disposition", "reason"),
    [
        (TransferDisposition.UNDERPAID, FailureReason.AMOUNT_MISMATCH),
        (TransferDisposition.OVERPAID, FailureReason.AMOUNT_MISMATCH),
        (TransferDisposition.WRONG_TOKEN, FailureReason.TOKEN_MISMATCH),
    ],
)
def test_a_mismatch_ends_a_payment_early_only_if_its_buyer_posted_it(
    disposition: TransferDisposition, reason: FailureReason
) -> None:
    def told(since: timedelta, *, posted: bool) -> SessionReport:
        return decide_onchain_session(
            evidence(mismatches=(mismatch(disposition, since, posted=posted),))
        )

    assert told(RETRY_GRACE, posted=True) == failed(reason)
    assert told(RETRY_GRACE - SECOND, posted=True) == OPEN
    assert told(RETRY_GRACE * 100, posted=False) == OPEN  # a copycat cannot end a payment
    last = after(mismatches=(mismatch(disposition, SECOND, posted=False),))
    assert decide_onchain_session(last) == failed(reason)


def test_a_chain_that_nobody_can_read_is_waited_for_however_long() -> None:
    known = {"mismatches": (mismatch(TransferDisposition.OVERPAID, SECOND, posted=False),)}
    for blind in ({"final_at": DEADLINE - SECOND}, {"final_at": None}):
        for seconds in (1, OUTAGE_MAX.total_seconds() * 30):
            assert decide_onchain_session(after(seconds, **blind)) == UNDER_WAY
            assert decide_onchain_session(after(seconds, **blind, **known)) == UNDER_WAY
    assert decide_onchain_session(after(**known)) == failed(FailureReason.AMOUNT_MISMATCH)


def test_nothing_seen_expires_when_the_final_blocks_are_past_the_deadline() -> None:
    assert decide_onchain_session(after()) == NOTHING
    assert (
        decide_onchain_session(after(final_at=DEADLINE)) == UNDER_WAY
    )  # its second could hold one more block


def test_nothing_seen_expires_at_once_where_two_endpoints_have_shown_the_blocks() -> None:
    early = {"final_at": NOW}
    assert decide_onchain_session(after(**early)) == UNDER_WAY
    assert decide_onchain_session(after(**early, window_at=DEADLINE)) == UNDER_WAY  # as above
    assert decide_onchain_session(after(**early, window_at=DEADLINE + SECOND)) == NOTHING


@pytest.mark.parametrize(
    "trace",
    [
        {"posted_transactions": (hint(PostedTransactionState.UNKNOWN),)},
        {"is_exact_gone": True},
        {"mismatches": (mismatch(TransferDisposition.UNDERPAID, SECOND, posted=False),)},
    ],
)
def test_any_trace_waits_for_the_final_blocks(trace: dict[str, Any]) -> None:
    assert (
        decide_onchain_session(after(final_at=NOW, window_at=DEADLINE + SECOND, **trace))
        == UNDER_WAY
    )
    assert decide_onchain_session(after(**trace)).state is GatewaySessionState.DECLINED


@pytest.mark.parametrize("state", [PostedTransactionState.UNKNOWN, PostedTransactionState.PENDING])
def test_a_hash_that_was_never_mined_is_a_timeout_on_chain(state: PostedTransactionState) -> None:
    assert decide_onchain_session(after(posted_transactions=(hint(state),))) == failed(
        FailureReason.ONCHAIN_TIMEOUT
    )


def test_an_exact_payment_that_is_gone_for_good_is_a_timeout_on_chain() -> None:
    assert decide_onchain_session(after(is_exact_gone=True)) == failed(
        FailureReason.ONCHAIN_TIMEOUT
    )


def test_a_revert_is_told_before_a_timeout_and_money_before_both() -> None:
    reverted = (revert("transfer", SECOND), hint(PostedTransactionState.UNKNOWN))
    assert decide_onchain_session(after(posted_transactions=reverted)) == failed(
        FailureReason.TX_REVERTED
    )
    arrived = (mismatch(TransferDisposition.WRONG_TOKEN, SECOND, posted=False),)
    told = after(posted_transactions=reverted, mismatches=arrived)
    assert decide_onchain_session(told) == failed(FailureReason.TOKEN_MISMATCH)
