"""The refund record, the rounding of partial refunds, and the effects of gateway reports."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from uuid import UUID

from payintent.core.money import CURRENCIES, format_amount
from payintent.gateways.port import GatewayRefundState, RefundReport

#: `requested_by` of refunds made directly at the gateway.
OUTSIDE_REQUESTER = "gateway:outside"
#: `requested_by` of automatic refunds, which a merchant can enable with `auto_refund`.
AUTO_REFUND = "policy:auto_refund"
#: Maximum number of transfers per session that are refunded automatically.
AUTOMATIC_TRANSFERS_MAX = 2


class RefundStatus(StrEnum):
    PENDING = "PENDING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


class RefundFailureReason(StrEnum):
    DECLINED = "DECLINED"  # by the gateway
    REJECTED = "REJECTED"  # by an operator


class RefundStep(StrEnum):
    ADDRESS = "address"  # the buyer must enter an address
    APPROVAL = "approval"  # needs a second operator
    QUEUED = "queued"
    SENT = "sent"  # the gateway may have received it
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refund:
    id: UUID
    merchant_id: int | None
    payment_id: UUID | None  # None if the capture does not belong to a payment
    capture_id: UUID
    case_id: UUID | None  # None for a refund of a payment
    amount: Decimal | None  # in the payment's currency; None for a refund of a case
    amount_text: str | None
    currency: str
    amount_minor: int  # in minor units of the capture's currency
    reason: str | None
    destination: str | None
    address_entries: int  # for a deposit: the number of times the buyer has entered the destination
    status: RefundStatus
    failure_reason: RefundFailureReason | None
    step: RefundStep
    reference: str | None
    requested_by: str
    note: str
    inquiries: int
    sent_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundableRemainder:
    amount: Decimal  # the payment's full amount
    remaining: Decimal  # neither refunded nor reserved
    capture_minor: int  # the full capture
    capture_remaining_minor: int


def convert_to_capture_units(amount: Decimal, remainder: RefundableRemainder, unit: int) -> int:
    """Convert part of a payment's amount to the smallest units of its capture.

    The result is rounded down to a multiple of the gateway's `unit`; the last refund receives the
    rounding remainder. The result also never exceeds the proportional share of the capture's
    remainder. Without this limit, rounding after failed refunds could leave too little for later
    refunds.
    """
    if amount == remainder.remaining:
        return remainder.capture_remaining_minor
    full_share = Fraction(amount) / Fraction(remainder.amount) * remainder.capture_minor
    remaining_share = (
        Fraction(amount) / Fraction(remainder.remaining) * remainder.capture_remaining_minor
    )
    return int(min(full_share, remaining_share) / unit) * unit


def format_payment_amount(amount: Decimal, currency: str) -> str:
    return format_amount(
        amount, CURRENCIES[currency].amount_decimals, trim=CURRENCIES[currency].is_crypto
    )


class RefundEffect(StrEnum):
    NONE = "none"
    WAIT = "wait"  # in progress, or outcome unknown
    SUCCEED = "succeed"
    FAIL = "fail"
    CONTRADICT = "contradict"  # contradicts the recorded outcome; needs manual review


def decide_refund(status: RefundStatus, report: RefundReport) -> RefundEffect:
    if status is RefundStatus.PENDING:
        return _EFFECTS_WHILE_PENDING[report.state]
    contradiction = {
        RefundStatus.SUCCEEDED: GatewayRefundState.DECLINED,
        RefundStatus.FAILED: GatewayRefundState.DONE,
    }
    return RefundEffect.CONTRADICT if report.state is contradiction[status] else RefundEffect.NONE


_EFFECTS_WHILE_PENDING = {
    GatewayRefundState.DONE: RefundEffect.SUCCEED,
    GatewayRefundState.PENDING: RefundEffect.WAIT,
    GatewayRefundState.ABSENT: RefundEffect.WAIT,
    GatewayRefundState.DECLINED: RefundEffect.FAIL,
}
