"""The captures of transfers to a deposit address, in a table and for random transfers."""

import itertools
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payintent.gateways.port import FailureReason, GatewaySessionState, SessionReport
from payintent.onchain.deposit_rules import (
    DepositEvidence,
    FinalDeposit,
    decide_captures,
    decide_deposit_session,
)

DEADLINE = datetime(2026, 12, 1, tzinfo=UTC)
BEFORE, AFTER = DEADLINE - timedelta(minutes=1), DEADLINE + timedelta(seconds=1)


def deposit(
    number: int, amount: int, currency: str = "USDT", at: datetime = BEFORE
) -> FinalDeposit:
    return FinalDeposit(UUID(int=number), f"0x{number:02x}:0", currency, amount, at)


def evidence(*deposits: FinalDeposit, **changes: Any) -> DepositEvidence:
    fields: dict[str, Any] = {
        "now": BEFORE,
        "deadline": DEADLINE,
        "currency": "USDT",
        "amount": 100,
        "tolerance": 0,
        "surplus_min": 5,
        "is_current": True,
        "read_until": BEFORE,
        "has_pending": False,
        "has_unproven": False,
        "was_pending": False,
        "deposits": deposits,
    }
    return DepositEvidence(**(fields | changes))


def list_captures(facts: DepositEvidence) -> list[tuple[str, int, str]]:
    """List the captures with the core's decision, the amount and the token."""
    captures = [item.report.capture for item in decide_captures(facts)]
    return [
        (
            "surplus"
            if capture.is_surplus
            else "pays"
            if capture.matches(facts.amount, facts.currency)
            else "case",
            capture.amount_minor,
            capture.currency,
        )
        for capture in captures
        if capture is not None
    ]


ENDED = {"is_current": False}
READ = {"read_until": AFTER, "now": AFTER}


@pytest.mark.parametrize(
    ("facts", "captures"),
    [
        (evidence(deposit(1, 100)), [("pays", 100, "USDT")]),
        (evidence(deposit(1, 60), deposit(2, 40)), [("pays", 100, "USDT")]),
        (evidence(deposit(1, 100, at=DEADLINE), **READ), [("pays", 100, "USDT")]),
        (evidence(deposit(1, 99), tolerance=1), [("pays", 99, "USDT")]),
        (evidence(deposit(1, 98), tolerance=1), []),
        (evidence(deposit(1, 98), tolerance=1, **READ), [("case", 98, "USDT")]),
        (evidence(deposit(1, 98), has_unproven=True, **READ), []),
        (evidence(deposit(1, 100), has_unproven=True, **READ), [("pays", 100, "USDT")]),
        (evidence(deposit(1, 104)), [("pays", 104, "USDT")]),
        (evidence(deposit(1, 105)), [("pays", 100, "USDT"), ("surplus", 5, "USDT")]),
        (evidence(deposit(1, 60), deposit(2, 40, at=AFTER)), []),
        (evidence(deposit(1, 60), deposit(2, 40, at=AFTER), **READ), [("case", 60, "USDT")]),
        (evidence(deposit(1, 60), deposit(2, 30), **READ), [("case", 90, "USDT")]),
        (evidence(deposit(1, 100, "USDC")), []),
        (evidence(deposit(1, 100, "USDC"), **READ), [("case", 100, "USDC")]),
        (evidence(deposit(1, 9, "USDC"), deposit(2, 9), **READ), [("case", 9, "USDT")]),
        (evidence(deposit(1, 100, at=AFTER), **READ), []),
        (evidence(deposit(1, 100), **ENDED), [("pays", 100, "USDT")]),  # the core opens a case
        (
            evidence(deposit(1, 1), deposit(2, 2), deposit(3, 5, "USDC"), **ENDED),
            [("case", 3, "USDT"), ("case", 5, "USDC")],
        ),
        (evidence(), []),
        (evidence(**READ), []),
        (evidence(deposit(1, 100), read_until=None, now=AFTER), [("pays", 100, "USDT")]),
        (evidence(deposit(1, 99), read_until=None, now=AFTER), []),
    ],
)
def test_captures_follow_the_decision_table(
    facts: DepositEvidence, captures: list[tuple[str, int, str]]
) -> None:
    assert list_captures(facts) == captures


def test_a_session_ends_only_when_its_deadline_is_final_and_no_capture_is_due() -> None:
    times = (None, BEFORE, DEADLINE, AFTER)
    flags = (False, True)
    for read_until, now, pending, unproven, gone, current, paid in itertools.product(
        times, (BEFORE, AFTER), flags, flags, flags, flags, ((), (deposit(1, 1),))
    ):
        facts = evidence(
            *paid, read_until=read_until, now=now, has_pending=pending, has_unproven=unproven,
            was_pending=gone, is_current=current,
        )  # fmt: skip
        report = decide_deposit_session(facts)
        assert report.capture is None
        if read_until != AFTER or unproven:
            waits = pending or bool(paid) or now == AFTER
            expected = GatewaySessionState.AUTHORISING if waits else GatewaySessionState.OPEN
            assert report == SessionReport(state=expected), facts
        elif current and paid:
            assert report.state is GatewaySessionState.AUTHORISING
        elif gone:
            assert report.reason is FailureReason.ONCHAIN_TIMEOUT
            assert report.state is GatewaySessionState.DECLINED
        else:
            assert report == SessionReport(state=GatewaySessionState.CLOSED)


@given(
    amounts=st.lists(
        st.tuples(
            st.integers(1, 150), st.sampled_from(["USDT", "USDC"]), st.sampled_from([BEFORE, AFTER])
        ),
        max_size=6,
    ),
    tolerance=st.integers(0, 10),
    surplus_min=st.integers(1, 20),
)
def test_every_deposit_is_captured_once_and_in_full(
    amounts: list[tuple[int, str, datetime]], tolerance: int, surplus_min: int
) -> None:
    deposits = [deposit(number, *item) for number, item in enumerate(amounts)]
    captured: Counter[str] = Counter()
    references: list[str] = []
    is_current, remaining = True, deposits
    while True:
        facts = evidence(
            *remaining, is_current=is_current, tolerance=tolerance, surplus_min=surplus_min, **READ
        )
        captures = decide_captures(facts)
        if not captures and not is_current:
            break
        for item in captures:
            capture = item.report.capture
            assert capture is not None
            captured[capture.currency] += capture.amount_minor
            references.append(capture.reference)
        used = {number for item in captures for number in item.deposit_ids}
        remaining = [item for item in remaining if item.id not in used]
        is_current = False  # a capture at the deadline ends the payment, and so does its expiry
    assert remaining == []
    assert len(set(references)) == len(references)
    for currency in ("USDT", "USDC"):
        total = sum(amount for amount, token, _ in amounts if token == currency)
        assert captured[currency] == total
