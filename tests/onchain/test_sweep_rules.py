"""The conditions under which deposit addresses are swept."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from payintent.onchain.sweeps.rules import (
    BATCH_MAX,
    FAILURES_MAX,
    SweepPolicy,
    UnsweptAddress,
    choose_batches,
)

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
POLICY = SweepPolicy(count=3, after=timedelta(hours=24), requested_at=None)
YOUNG = UnsweptAddress(
    account_id=1,
    factory=bytes(20),
    session_id=UUID(int=1),
    uuid=bytes(16),
    token=bytes(20),
    amount=Decimal(10),
    oldest_at=NOW - timedelta(hours=1),
    failures=0,
    failed_at=None,
    value_max=Decimal(0),
)
OLD = replace(YOUNG, oldest_at=NOW - timedelta(hours=24))
FAILED = replace(OLD, failures=1, failed_at=NOW - timedelta(minutes=59))


def sizes(addresses: list[UnsweptAddress], policy: SweepPolicy = POLICY) -> list[int]:
    return [len(batch.addresses) for batch in choose_batches(addresses, policy, NOW)]


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ([], []),
        ([YOUNG], []),
        ([YOUNG] * 3, [3]),
        ([YOUNG, OLD], [2]),
        ([replace(YOUNG, value_max=Decimal(20))], []),
        ([replace(YOUNG, value_max=Decimal(20))] * 2, [2]),
        ([OLD, replace(OLD, token=bytes([1] * 20)), replace(OLD, account_id=2)], [1, 1, 1]),
        ([OLD] * 201, [BATCH_MAX]),
        ([FAILED], []),
        ([replace(FAILED, failed_at=NOW - timedelta(hours=1))], [1]),
        ([replace(FAILED, failures=2, failed_at=NOW - timedelta(minutes=119))], []),
        ([replace(FAILED, failures=2, failed_at=NOW - timedelta(hours=2))], [1]),
        ([replace(FAILED, failures=FAILURES_MAX, failed_at=NOW - timedelta(days=9))], []),
    ],
)
def test_a_batch_is_due_by_count_age_or_value(
    addresses: list[UnsweptAddress], expected: list[int]
) -> None:
    assert sizes(addresses) == expected


def test_a_sweep_request_includes_only_deposits_that_were_already_final() -> None:
    policy = replace(POLICY, requested_at=YOUNG.oldest_at)
    assert sizes([YOUNG], policy) == [1]
    assert sizes([replace(YOUNG, oldest_at=NOW)], policy) == []


def test_the_oldest_deposits_are_swept_first() -> None:
    [batch] = choose_batches([YOUNG, OLD, *[YOUNG] * 200], POLICY, NOW)
    assert batch.addresses[0] == OLD
