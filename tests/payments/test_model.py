"""State transitions, compared with a copy of the table in section 3 of the specification."""

from datetime import timedelta

import pytest

from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateways.port import FailureReason
from payintent.payments.model import (
    OPEN,
    TERMINAL,
    TRANSITIONS,
    PaymentStatus,
    PaymentTrigger,
    find_transition,
)
from payintent.webhooks.model import EventType, list_event_payload_fields
from tests.support.sample_values import NOW, a_payment

# The columns are: from, trigger, to, event.
SPECIFIED = """
PENDING            | select       | PROCESSING         |
PROCESSING         | select       | PROCESSING         |
PROCESSING         | confirm      | PAID               | payment.completed
PROCESSING         | fail         | FAILED             | payment.failed
PENDING            | expire       | EXPIRED            | payment.expired
PROCESSING         | expire       | EXPIRED            | payment.expired
PENDING            | cancel       | CANCELLED          | payment.cancelled
PENDING            | buyer_cancel | CANCELLED          |
PAID               | refund_part  | PARTIALLY_REFUNDED |
PAID               | refund_rest  | REFUNDED           |
PARTIALLY_REFUNDED | refund_rest  | REFUNDED           |
"""
# The specification shows only the last partial refund; earlier refunds do not change the status.
DECIDED = "PARTIALLY_REFUNDED | refund_part | PARTIALLY_REFUNDED |"


def _read(table: str) -> dict[tuple[str, str], tuple[str, str | None]]:
    rows = [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]
    return {(before, trigger): (after, event or None) for before, trigger, after, event in rows}


EXPECTED = _read(SPECIFIED) | _read(DECIDED)


def test_the_statuses_and_triggers_match_the_specification() -> None:
    assert {status.value for status in PaymentStatus} == {
        *("PENDING", "PROCESSING", "PAID", "FAILED"),
        *("EXPIRED", "CANCELLED", "PARTIALLY_REFUNDED", "REFUNDED"),
    }
    assert {trigger.value for trigger in PaymentTrigger} == {trigger for _, trigger in EXPECTED}
    assert {status.value for status in OPEN} == {"PENDING", "PROCESSING"}
    assert set(PaymentStatus) - OPEN == TERMINAL


@pytest.mark.parametrize("trigger", PaymentTrigger)
@pytest.mark.parametrize("status", PaymentStatus)
def test_every_trigger_in_every_status_has_the_specified_effect(
    status: PaymentStatus, trigger: PaymentTrigger
) -> None:
    expected = EXPECTED.get((status.value, trigger.value))
    if expected is None:
        with pytest.raises(RefusedError) as error:
            find_transition(status, trigger)
        assert error.value.code is ErrorCode.INVALID_TRANSITION
        assert status.value in error.value.message
        return
    transition = find_transition(status, trigger)
    assert (transition.new_status.value, transition.event and transition.event.value) == expected


def test_a_pending_payment_cannot_become_paid_or_failed_directly() -> None:
    next_statuses = {
        transition.new_status
        for (status, _), transition in TRANSITIONS.items()
        if status is PaymentStatus.PENDING
    }
    assert not next_statuses & {PaymentStatus.PAID, PaymentStatus.FAILED}


def test_only_transitions_from_open_to_terminal_statuses_have_an_event() -> None:
    for (status, _), transition in TRANSITIONS.items():
        if transition.event is not None:
            assert status in OPEN
            assert transition.new_status in TERMINAL


@pytest.mark.parametrize("status", PaymentStatus)
def test_only_an_open_payment_elapses_exactly_at_its_expiry_time(status: PaymentStatus) -> None:
    is_open = status.value in {"PENDING", "PROCESSING"}
    payment = a_payment(status=status, expires_at=NOW)
    assert payment.is_past_expiry(NOW) is is_open
    assert payment.is_past_expiry(NOW + timedelta(days=1)) is is_open
    assert payment.is_past_expiry(NOW - timedelta(milliseconds=1)) is False


@pytest.mark.parametrize(
    ("kind", "specific"),
    [
        ("payment.completed", ["receipt_id", "provider", "paid_at"]),
        ("payment.failed", ["failure_reason", "failed_at"]),
        ("payment.expired", ["expired_at"]),
        ("payment.cancelled", ["cancelled_at"]),
    ],
)
def test_an_event_has_exactly_the_fields_of_section_6_1(kind: str, specific: list[str]) -> None:
    common = ["id", "status", "currency", "amount", "payer_uid"]
    assert list(list_event_payload_fields(EventType(kind))) == [*common, *specific, "metadata"]


def test_the_event_types_and_failure_reasons_match_section_6_3() -> None:
    assert len(EventType) == 4
    assert {reason.value for reason in FailureReason} == {
        *("UNKNOWN", "DECLINED", "TX_REVERTED"),
        *("AMOUNT_MISMATCH", "TOKEN_MISMATCH", "ONCHAIN_TIMEOUT"),
    }
