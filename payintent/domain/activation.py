"""The activation of a merchant: its steps from the request into service."""

from collections.abc import Mapping
from enum import StrEnum

from payintent.domain.errors import ErrorCode, RefusedError


class ActivationStatus(StrEnum):
    NEW = "NEW"
    REQUESTED = "REQUESTED"  # contract and KYC are recorded, countries and currencies requested
    APPLIED = "APPLIED"  # payments are possible, to validate the integration
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

#: An active merchant stays in service while it requests a new market.
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
    (_A.SUSPENDED, ActivationAction.RESUME): _A.APPLIED,  # ACTIVE if it was active before
}


def next_activation_status(
    status: ActivationStatus, action: ActivationAction, *, was_active: bool
) -> ActivationStatus:
    """Return the status after an action; raise `CONFLICT` if the action is not allowed."""
    if (status, action) not in TRANSITIONS:
        raise RefusedError(ErrorCode.CONFLICT, f"cannot {action} a merchant that is {status}")
    if action is ActivationAction.RESUME and was_active:
        return ActivationStatus.ACTIVE
    return TRANSITIONS[status, action]


def require_in_service(activation: ActivationStatus) -> None:
    """Raise `UNPROCESSABLE` if a merchant is not in service."""
    if activation not in _IN_SERVICE:
        raise RefusedError(
            ErrorCode.UNPROCESSABLE, f"this merchant does not accept payments: it is {activation}"
        )


def is_in_service(activation: ActivationStatus) -> bool:
    return activation in _IN_SERVICE
