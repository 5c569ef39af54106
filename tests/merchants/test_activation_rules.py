"""`next_activation_status`, compared with a second copy of the activation rules."""

import pytest

from payintent.core.errors import ErrorCode, RefusedError
from payintent.merchants.model import (
    TRANSITIONS,
    ActivationAction,
    ActivationStatus,
    accepts_payments,
    next_activation_status,
    require_accepting_payments,
)

# From | Step | To. If the merchant was active before, it resumes as ACTIVE.
SPECIFIED = """
NEW       | request  | REQUESTED
REQUESTED | request  | REQUESTED
REQUESTED | apply    | APPLIED
APPLIED   | validate | VALIDATED
VALIDATED | activate | ACTIVE
ACTIVE    | request  | ACTIVE
ACTIVE    | apply    | ACTIVE
APPLIED   | suspend  | SUSPENDED
VALIDATED | suspend  | SUSPENDED
ACTIVE    | suspend  | SUSPENDED
SUSPENDED | resume   | APPLIED
"""
EXPECTED = {
    (before, step): after
    for before, step, after in (
        (cell.strip() for cell in line.split("|")) for line in SPECIFIED.strip().splitlines()
    )
}


def test_statuses_actions_and_transitions_match_the_specification() -> None:
    assert {item.value for item in ActivationStatus} == {
        *("NEW", "REQUESTED", "APPLIED", "VALIDATED", "ACTIVE", "SUSPENDED")
    }
    assert {item.value for item in ActivationAction} == {step for _, step in EXPECTED}
    transitions = {
        (before.value, step.value): after.value for (before, step), after in TRANSITIONS.items()
    }
    assert transitions == EXPECTED


@pytest.mark.parametrize("was_active", [False, True])
@pytest.mark.parametrize("step", ActivationAction)
@pytest.mark.parametrize("now", ActivationStatus)
def test_each_action_in_each_status_has_the_specified_result(
    now: ActivationStatus, step: ActivationAction, was_active: bool
) -> None:
    expected = EXPECTED.get((now.value, step.value))
    if expected is None:
        with pytest.raises(RefusedError) as error:
            next_activation_status(now, step, was_active=was_active)
        assert error.value.code is ErrorCode.CONFLICT
        assert now.value in error.value.message
        assert step.value in error.value.message
        return
    if step is ActivationAction.RESUME and was_active:
        expected = "ACTIVE"
    assert next_activation_status(now, step, was_active=was_active).value == expected


@pytest.mark.parametrize("now", ActivationStatus)
def test_payments_are_accepted_once_the_market_is_applied(now: ActivationStatus) -> None:
    serves = now.value in {"APPLIED", "VALIDATED", "ACTIVE"}
    assert accepts_payments(now) is serves
    if serves:
        require_accepting_payments(now)
        return
    with pytest.raises(RefusedError) as error:
        require_accepting_payments(now)
    assert error.value.code is ErrorCode.UNPROCESSABLE
    assert now.value in error.value.message


def test_a_merchant_cannot_become_active_before_validation() -> None:
    """Follow all paths from NEW. ACTIVE can be reached only from VALIDATED."""
    reached, unvisited = {ActivationStatus.NEW}, [ActivationStatus.NEW]
    while unvisited:
        now = unvisited.pop()
        for step in ActivationAction:
            if (now, step) not in TRANSITIONS:
                continue
            after = next_activation_status(now, step, was_active=False)
            assert after is not ActivationStatus.ACTIVE or now in {
                ActivationStatus.VALIDATED,
                ActivationStatus.ACTIVE,
            }
            if after not in reached:
                reached.add(after)
                unvisited.append(after)
    assert reached == set(ActivationStatus)
