"""How a merchant comes into service: agreement and KYC, request, applied, validated, active."""

from collections.abc import Mapping
from enum import StrEnum

from payintent.domain.errors import ErrorCode, RefusedError


class ActivationStatus(StrEnum):
    NEW = "NEW"
    REQUESTED = "REQUESTED"  # agreement and KYC are noted, countries and currencies are named
    APPLIED = "APPLIED"  # the operator has set it up; payments can be made to validate the flow
    VALIDATED = "VALIDATED"
    ACTIVE = "ACTIVE"
    SUSPENDED = "SUSPENDED"


class ActivationAction(StrEnum):
    REQUEST = "request"
    APPLY = "apply"
    VALIDATE = "validate"
    ACTIVATE = "activate"
    SUSPEND = "suspend"
    RESUME = "resume"


_A = ActivationStatus
_IN_SERVICE = (_A.APPLIED, _A.VALIDATED, _A.ACTIVE)

#: An active merchant may request more: its request is applied without leaving service.
TRANSITIONS: Mapping[tuple[ActivationStatus, ActivationAction], ActivationStatus] = {
    (_A.NEW, ActivationAction.REQUEST): _A.REQUESTED,
    (_A.REQUESTED, ActivationAction.REQUEST): _A.REQUESTED,
    (_A.ACTIVE, ActivationAction.REQUEST): _A.ACTIVE,
    (_A.REQUESTED, ActivationAction.APPLY): _A.APPLIED,
    (_A.ACTIVE, ActivationAction.APPLY): _A.ACTIVE,
    (_A.APPLIED, ActivationAction.VALIDATE): _A.VALIDATED,
    (_A.VALIDATED, ActivationAction.ACTIVATE): _A.ACTIVE,
    (_A.APPLIED, ActivationAction.SUSPEND): _A.SUSPENDED,
    (_A.VALIDATED, ActivationAction.SUSPEND): _A.SUSPENDED,
    (_A.ACTIVE, ActivationAction.SUSPEND): _A.SUSPENDED,
    (_A.SUSPENDED, ActivationAction.RESUME): _A.APPLIED,  # ACTIVE where it was active before
}


def next_activation_status(
    now: ActivationStatus, step: ActivationAction, *, was_active: bool
) -> ActivationStatus:
    """Return the status that an action leads to; raise `CONFLICT` where it is not allowed now."""
    if (now, step) not in TRANSITIONS:
        raise RefusedError(ErrorCode.CONFLICT, f"cannot {step} a merchant that is {now}")
    if step is ActivationAction.RESUME and was_active:
        return ActivationStatus.ACTIVE
    return TRANSITIONS[now, step]


def require_in_service(activation: ActivationStatus) -> None:
    """Raise `UNPROCESSABLE` for a payment to a merchant that is not, or no longer, in service."""
    if activation not in _IN_SERVICE:
        raise RefusedError(
            ErrorCode.UNPROCESSABLE, f"this merchant takes no payments: it is {activation}"
        )


def is_in_service(activation: ActivationStatus) -> bool:
    return activation in _IN_SERVICE
