"""Payments, their sessions and their status transitions (spec section 3)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Self
from uuid import UUID

from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateways.port import FailureReason, GatewaySessionRef
from payintent.merchants.model import Quote, TaxManager
from payintent.webhooks.model import EventType


class PaymentStatus(StrEnum):
    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    PAID = "PAID"
    FAILED = "FAILED"
    EXPIRED = "EXPIRED"
    CANCELLED = "CANCELLED"
    PARTIALLY_REFUNDED = "PARTIALLY_REFUNDED"
    REFUNDED = "REFUNDED"


class PaymentTrigger(StrEnum):
    SELECT = "select"  # the buyer selects or changes the payment method
    CONFIRM = "confirm"  # a gateway or chain confirms receipt of the money
    FAIL = "fail"  # a gateway or chain reports that the session ended unpaid
    EXPIRE = "expire"
    CANCEL = "cancel"  # by the merchant
    BUYER_CANCEL = "buyer_cancel"  # without an event for the merchant
    PARTIAL_REFUND = "refund_part"  # refunds part of the remaining amount
    FINAL_REFUND = "refund_rest"  # refunds the remaining amount


OPEN = frozenset({PaymentStatus.PENDING, PaymentStatus.PROCESSING})
TERMINAL = frozenset(PaymentStatus) - OPEN
#: The payment has ended unpaid.
UNPAID = frozenset({PaymentStatus.FAILED, PaymentStatus.EXPIRED, PaymentStatus.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentRequest:
    """Fields that identify a retry of a request with the same `Idempotency-Key`."""

    merchant_id: int
    key: UUID
    request_hash: bytes  # fingerprint of the parsed values
    raw_fields: tuple[object, ...] = ()  # operation and raw fields, as hashed before version 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAttempt(IdempotentRequest):
    """A create request whose values have not been validated yet."""

    expires_in_s: int
    country: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePaymentRequest(CreateAttempt):
    """A valid create request. Strings are stored exactly as received."""

    currency: str
    amount: Decimal
    amount_text: str
    payer_uid: str
    payer_email: str | None
    include_pegged_assets: bool
    metadata: str  # the JSON text, byte for byte
    tax_manager: TaxManager
    return_url: str | None = None
    cancel_url: str | None = None


@dataclass(frozen=True, slots=True)
class Payment:
    """A stored payment; each field is a column of the `payment` table."""

    id: UUID
    merchant_id: int
    checkout_id: str
    currency: str
    amount: Decimal
    amount_text: str  # exactly as received
    payer_uid: str
    payer_email: str | None
    include_pegged_assets: bool
    metadata: str  # the JSON text, byte for byte
    tax_manager: TaxManager
    expires_at: datetime
    created_at: datetime
    updated_at: datetime
    status: PaymentStatus = PaymentStatus.PENDING
    version: int = 1  # incremented with every status change
    session_id: UUID | None = None
    receipt_id: UUID | None = None
    failure_reason: FailureReason | None = None
    refunded_amount: Decimal = Decimal(0)
    paid_at: datetime | None = None
    failed_at: datetime | None = None
    expired_at: datetime | None = None
    cancelled_at: datetime | None = None
    return_url: str | None = None  # to which the buyer returns from the checkout
    cancel_url: str | None = None  # to which the buyer returns without having paid

    @classmethod
    def from_request(
        cls,
        request: CreatePaymentRequest,
        payment_id: UUID,
        checkout_id: str,
        created_at: datetime,
        expires_at: datetime,
    ) -> Self:
        return cls(
            id=payment_id,
            merchant_id=request.merchant_id,
            checkout_id=checkout_id,
            currency=request.currency,
            amount=request.amount,
            amount_text=request.amount_text,
            payer_uid=request.payer_uid,
            payer_email=request.payer_email,
            include_pegged_assets=request.include_pegged_assets,
            metadata=request.metadata,
            tax_manager=request.tax_manager,
            expires_at=expires_at,
            created_at=created_at,
            updated_at=created_at,
            return_url=request.return_url,
            cancel_url=request.cancel_url,
        )

    def is_past_expiry(self, now: datetime) -> bool:
        """Return whether the payment is open and past its deadline."""
        return self.status in OPEN and self.expires_at <= now


@dataclass(frozen=True, slots=True)
class Transition:
    new_status: PaymentStatus
    event: EventType | None = None


_S, _T = PaymentStatus, PaymentTrigger
TRANSITIONS: dict[tuple[PaymentStatus, PaymentTrigger], Transition] = {
    (_S.PENDING, _T.SELECT): Transition(_S.PROCESSING),
    (_S.PENDING, _T.EXPIRE): Transition(_S.EXPIRED, EventType.EXPIRED),
    (_S.PENDING, _T.CANCEL): Transition(_S.CANCELLED, EventType.CANCELLED),
    (_S.PENDING, _T.BUYER_CANCEL): Transition(_S.CANCELLED),
    (_S.PROCESSING, _T.SELECT): Transition(_S.PROCESSING),
    (_S.PROCESSING, _T.CONFIRM): Transition(_S.PAID, EventType.COMPLETED),
    (_S.PROCESSING, _T.FAIL): Transition(_S.FAILED, EventType.FAILED),
    (_S.PROCESSING, _T.EXPIRE): Transition(_S.EXPIRED, EventType.EXPIRED),
    (_S.PAID, _T.PARTIAL_REFUND): Transition(_S.PARTIALLY_REFUNDED),
    (_S.PAID, _T.FINAL_REFUND): Transition(_S.REFUNDED),
    # Another partial refund does not change the status. The specification's table lacks this row.
    (_S.PARTIALLY_REFUNDED, _T.PARTIAL_REFUND): Transition(_S.PARTIALLY_REFUNDED),
    (_S.PARTIALLY_REFUNDED, _T.FINAL_REFUND): Transition(_S.REFUNDED),
}


def find_transition(status: PaymentStatus, trigger: PaymentTrigger) -> Transition:
    """Return the transition for a trigger. Raises `INVALID_TRANSITION` if there is none."""
    transition = TRANSITIONS.get((status, trigger))
    if transition is None:
        raise RefusedError(
            ErrorCode.INVALID_TRANSITION, f"a payment in {status} status does not allow '{trigger}'"
        )
    return transition


class SessionStatus(StrEnum):
    """The status of a session (column `life`). Only a gateway or chain can end a session."""

    OPENING = "opening"  # stored before the gateway is called
    OPEN = "open"  # the buyer can pay with it
    CLOSING = "closing"  # replaced or expired, but not yet closed by the gateway
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    id: UUID
    payment_id: UUID
    status: SessionStatus
    outcome: str | None = None
    quote: Quote
    reference: str | None = None
    next_action: str | None = None  # JSON text
    return_url: str | None
    inquiries: int = 0  # since the session was opened, or since it started closing
    declines: int = 0  # declined attempts that the buyer could retry
    opened_at: datetime
    closing_at: datetime | None = None

    @property
    def gateway_ref(self) -> GatewaySessionRef:
        return GatewaySessionRef(
            session_id=self.id,
            reference=self.reference,
            amount_minor=self.quote.total_minor,
            currency=self.quote.price.currency,
            opened_at=self.opened_at,
            payment_id=self.payment_id,
        )


#: Grace period for another attempt, or for an exact transfer after an amount mismatch.
RETRY_GRACE = timedelta(seconds=120)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionRequest:
    """A trigger to apply to a payment. The payment must be locked."""

    payment: Payment
    trigger: PaymentTrigger
    at: datetime
    session: Session | None = None  # the selected or reported session
    reason: FailureReason | None = None
    refund_amount: Decimal | None = None  # the refunded portion of the reserved amount

    @property
    def transition(self) -> Transition:
        return find_transition(self.payment.status, self.trigger)

    @property
    def selected_session_id(self) -> UUID | None:
        is_selection = self.trigger is PaymentTrigger.SELECT
        return self.session.id if is_selection and self.session else None
