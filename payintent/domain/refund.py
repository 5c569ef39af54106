"""Refunds: what goes back of which capture, and what a provider's word does to one."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from uuid import UUID

from payintent.domain.gateway import GatewayRefundState, RefundReport


class RefundStatus(StrEnum):
    """What the merchant is told."""

    PENDING = "PENDING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


class RefundFailureReason(StrEnum):
    """Why a refund failed."""

    DECLINED = "DECLINED"  # the provider will not do it
    REJECTED = "REJECTED"  # an operator did not approve it


class RefundStep(StrEnum):
    """How far a refund is, for us."""

    APPROVAL = "approval"  # waits for a person
    QUEUED = "queued"  # was not sent
    SENT = "sent"  # may have been read by its gateway
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refund:
    """One refund as it is kept."""

    id: UUID
    merchant_id: int | None
    payment_id: UUID | None  # None: money that no payment is known for
    capture_id: UUID
    case_id: UUID | None  # None: asked for by the merchant
    amount: Decimal | None  # a part of the payment's amount; None: of a case
    amount_text: str | None
    currency: str
    amount_minor: int  # what the provider gives back, in the capture's units
    reason: str | None
    destination: str | None
    status: RefundStatus
    failure_reason: RefundFailureReason | None
    step: RefundStep
    reference: str | None
    requested_by: str
    approved_by: str | None
    note: str
    inquiries: int
    sent_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundableRemainder:
    """What may still be given back of a payment, and of the capture that paid it."""

    amount: Decimal  # of the payment, whole
    left: Decimal  # of it, neither refunded nor reserved
    capture_minor: int  # whole
    capture_left: int


def capture_share(part: Decimal, remainder: RefundableRemainder, unit: int) -> int:
    """Give the same share of what was paid as `part` is of the amount, in smallest units.

    Rounded down to whole `unit`s of the gateway; whoever takes all that is left takes the rest.
    Nobody takes more than his share of what is left either: refunds that were rounded down and
    failed have left less than theirs, and those who come later must find something.
    """
    if part == remainder.left:
        return remainder.capture_left
    of_all = Fraction(part) / Fraction(remainder.amount) * remainder.capture_minor
    of_left = Fraction(part) / Fraction(remainder.left) * remainder.capture_left
    return int(min(of_all, of_left) / unit) * unit


class RefundEffect(StrEnum):
    """What a report does to a refund."""

    NOTHING = "nothing"
    WAIT = "wait"  # it is under way, or nobody knows
    SUCCEED = "succeed"
    FAIL = "fail"
    CONTRADICT = "contradict"  # it had ended otherwise: a person must look


def decide_refund(status: RefundStatus, report: RefundReport) -> RefundEffect:
    """Judge a provider's word on a locked refund; it ends once."""
    if status is RefundStatus.PENDING:
        return _PENDING[report.state]
    contradiction = {
        RefundStatus.SUCCEEDED: GatewayRefundState.DECLINED,
        RefundStatus.FAILED: GatewayRefundState.DONE,
    }
    return (
        RefundEffect.CONTRADICT if report.state is contradiction[status] else RefundEffect.NOTHING
    )


_PENDING = {
    GatewayRefundState.DONE: RefundEffect.SUCCEED,
    GatewayRefundState.PENDING: RefundEffect.WAIT,
    GatewayRefundState.ABSENT: RefundEffect.WAIT,
    GatewayRefundState.DECLINED: RefundEffect.FAIL,
}
