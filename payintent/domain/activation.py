"""How a merchant comes into service: contract and KYC, request, applied, validated, active."""

from collections.abc import Mapping
from enum import StrEnum

from payintent.domain.errors import Code, Refused


class Activation(StrEnum):
    """How far a merchant's activation is (spec section 1)."""

    NEW = "NEW"
    REQUESTED = "REQUESTED"  # contract and KYC are noted, countries and currencies named
    APPLIED = "APPLIED"  # operations set it up; payments can be made to validate the flow
    VALIDATED = "VALIDATED"
    ACTIVE = "ACTIVE"
    SUSPENDED = "SUSPENDED"


class ActivationStep(StrEnum):
    """What an operator does to a merchant's activation."""

    REQUEST = "request"
    APPLY = "apply"
    VALIDATE = "validate"
    ACTIVATE = "activate"
    SUSPEND = "suspend"
    RESUME = "resume"


_A = Activation
_IN_SERVICE = (_A.APPLIED, _A.VALIDATED, _A.ACTIVE)

#: An active merchant may ask for more: its request is applied without leaving service.
ARROWS: Mapping[tuple[Activation, ActivationStep], Activation] = {
    (_A.NEW, ActivationStep.REQUEST): _A.REQUESTED,
    (_A.REQUESTED, ActivationStep.REQUEST): _A.REQUESTED,
    (_A.ACTIVE, ActivationStep.REQUEST): _A.ACTIVE,
    (_A.REQUESTED, ActivationStep.APPLY): _A.APPLIED,
    (_A.ACTIVE, ActivationStep.APPLY): _A.ACTIVE,
    (_A.APPLIED, ActivationStep.VALIDATE): _A.VALIDATED,
    (_A.VALIDATED, ActivationStep.ACTIVATE): _A.ACTIVE,
    (_A.APPLIED, ActivationStep.SUSPEND): _A.SUSPENDED,
    (_A.VALIDATED, ActivationStep.SUSPEND): _A.SUSPENDED,
    (_A.ACTIVE, ActivationStep.SUSPEND): _A.SUSPENDED,
    (_A.SUSPENDED, ActivationStep.RESUME): _A.APPLIED,  # ACTIVE where it was active before
}


def activation_step(now: Activation, step: ActivationStep, *, was_active: bool) -> Activation:
    """Give what a step leads to; refused (`CONFLICT`) where it is not the next one."""
    if (now, step) not in ARROWS:
        raise Refused(Code.CONFLICT, f"cannot {step} a merchant that is {now}")
    if step is ActivationStep.RESUME and was_active:
        return Activation.ACTIVE
    return ARROWS[now, step]


def refuse_out_of_service(activation: Activation) -> None:
    """Refuse (`UNPROCESSABLE`) a payment to a merchant that is not, or no longer, in service."""
    if activation not in _IN_SERVICE:
        raise Refused(Code.UNPROCESSABLE, f"this merchant takes no payments: it is {activation}")


def in_service(activation: Activation) -> bool:
    """Tell whether a merchant takes payments."""
    return activation in _IN_SERVICE
