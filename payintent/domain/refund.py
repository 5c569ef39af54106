"""Refunds: how much of a capture is refunded, and what a gateway's report does to a refund."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from uuid import UUID

from payintent.domain.gateway import GatewayRefundState, RefundReport

#: The requester of a refund that was made at the gateway itself.
OUTSIDE = "gateway:outside"
#: The requester of automatic refunds: the merchant's own rule.
AUTO_REFUND = "policy:auto_refund"


class RefundStatus(StrEnum):
    PENDING = "PENDING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


class RefundFailureReason(StrEnum):
    DECLINED = "DECLINED"  # the gateway will not do it
    REJECTED = "REJECTED"  # an operator did not approve it


class RefundStep(StrEnum):
    APPROVAL = "approval"  # waits for an operator
    QUEUED = "queued"  # not sent yet
    SENT = "sent"  # sent, and possibly received by its gateway
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refund:
    id: UUID
    merchant_id: int | None
    payment_id: UUID | None  # None: the capture belongs to no payment
    capture_id: UUID
    case_id: UUID | None  # None: requested by the merchant
    amount: Decimal | None  # a part of the payment's amount; None: of a case
    amount_text: str | None
    currency: str
    amount_minor: int  # what the gateway refunds, in the capture's minor units
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
    amount: Decimal  # of the payment, whole
    left: Decimal  # of the amount, neither refunded nor reserved
    capture_minor: int  # whole
    capture_left: int


def capture_share(part: Decimal, remainder: RefundableRemainder, unit: int) -> int:
    """Return the share of the capture that `part` is of the amount, in smallest units.

    Rounded down to whole `unit`s of the gateway; a refund of all that is left takes the rest.
    No refund takes more than its share of what is left either: refunds that were rounded down and
    failed have left less than their share, and later ones must still find something.
    """
    if part == remainder.left:
        return remainder.capture_left
    of_all = Fraction(part) / Fraction(remainder.amount) * remainder.capture_minor
    of_left = Fraction(part) / Fraction(remainder.left) * remainder.capture_left
    return int(min(of_all, of_left) / unit) * unit


class RefundEffect(StrEnum):
    NOTHING = "nothing"
    WAIT = "wait"  # it is under way, or its outcome is unknown
    SUCCEED = "succeed"
    FAIL = "fail"
    CONTRADICT = "contradict"  # it had ended otherwise: an operator must look


def decide_refund(status: RefundStatus, report: RefundReport) -> RefundEffect:
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
