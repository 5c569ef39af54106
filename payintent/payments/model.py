"""Payments and the table of their status transitions (spec section 3)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Self
from uuid import UUID

from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateways.port import FailureReason, GatewaySessionRef
from payintent.merchants.model import Quote
from payintent.merchants.price import TaxManager
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
    SELECT = "select"  # the buyer selects a method or changes it
    CONFIRM = "confirm"  # a gateway or a chain confirms the money
    FAIL = "fail"  # a gateway or a chain reports an end without money
    EXPIRE = "expire"
    CANCEL = "cancel"  # by the merchant
    BUYER_CANCEL = "buyer_cancel"  # without an event to the merchant
    REFUND_PART = "refund_part"  # a partial refund, some of the amount remains
    REFUND_REST = "refund_rest"  # the last part was refunded


OPEN = frozenset({PaymentStatus.PENDING, PaymentStatus.PROCESSING})
TERMINAL = frozenset(PaymentStatus) - OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentRequest:
    """The properties of a request that identify a repetition with the same `Idempotency-Key`."""

    merchant_id: int
    key: UUID
    request_hash: bytes  # fingerprint of the parsed values
    as_sent: tuple[object, ...] = ()  # operation and raw fields, which were hashed before version 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAttempt(IdempotentRequest):
    """A create before its values are checked."""

    expires_in_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePaymentRequest(CreateAttempt):
    """A create; the payment keeps these values, and texts are stored as received."""

    currency: str
    amount: Decimal
    amount_text: str
    payer_uid: str
    payer_email: str | None
    include_pegged_assets: bool
    metadata: str  # the JSON text, byte for byte
    tax_manager: TaxManager
    country: str | None


@dataclass(frozen=True, slots=True)
class Payment:
    """A stored payment; each field is a column of the table `payment`."""

    id: UUID
    merchant_id: int
    checkout_id: str
    status: PaymentStatus
    version: int  # incremented with every status change
    currency: str
    amount: Decimal
    amount_text: str  # exactly as received
    payer_uid: str
    payer_email: str | None
    include_pegged_assets: bool
    metadata: str  # the JSON text, byte for byte
    tax_manager: TaxManager
    session_id: UUID | None
    receipt_id: UUID | None
    failure_reason: FailureReason | None
    refunded_amount: Decimal
    expires_at: datetime
    paid_at: datetime | None
    failed_at: datetime | None
    expired_at: datetime | None
    cancelled_at: datetime | None
    created_at: datetime
    updated_at: datetime

    @classmethod
    def new(
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
            status=PaymentStatus.PENDING,
            version=1,
            currency=request.currency,
            amount=request.amount,
            amount_text=request.amount_text,
            payer_uid=request.payer_uid,
            payer_email=request.payer_email,
            include_pegged_assets=request.include_pegged_assets,
            metadata=request.metadata,
            tax_manager=request.tax_manager,
            session_id=None,
            receipt_id=None,
            failure_reason=None,
            refunded_amount=Decimal(0),
            expires_at=expires_at,
            paid_at=None,
            failed_at=None,
            expired_at=None,
            cancelled_at=None,
            created_at=created_at,
            updated_at=created_at,
        )

    def is_past_expiry(self, now: datetime) -> bool:
        """Return whether an open payment has reached its deadline."""
        return self.status in OPEN and self.expires_at <= now


@dataclass(frozen=True, slots=True)
class Transition:
    to: PaymentStatus
    event: EventType | None = None


TRANSITIONS: dict[tuple[PaymentStatus, PaymentTrigger], Transition] = {
    (PaymentStatus.PENDING, PaymentTrigger.SELECT): Transition(PaymentStatus.PROCESSING),
    (PaymentStatus.PENDING, PaymentTrigger.EXPIRE): Transition(
        PaymentStatus.EXPIRED, EventType.EXPIRED
    ),
    (PaymentStatus.PENDING, PaymentTrigger.CANCEL): Transition(
        PaymentStatus.CANCELLED, EventType.CANCELLED
    ),
    (PaymentStatus.PENDING, PaymentTrigger.BUYER_CANCEL): Transition(PaymentStatus.CANCELLED),
    (PaymentStatus.PROCESSING, PaymentTrigger.SELECT): Transition(PaymentStatus.PROCESSING),
    (PaymentStatus.PROCESSING, PaymentTrigger.CONFIRM): Transition(
        PaymentStatus.PAID, EventType.COMPLETED
    ),
    (PaymentStatus.PROCESSING, PaymentTrigger.FAIL): Transition(
        PaymentStatus.FAILED, EventType.FAILED
    ),
    (PaymentStatus.PROCESSING, PaymentTrigger.EXPIRE): Transition(
        PaymentStatus.EXPIRED, EventType.EXPIRED
    ),
    (PaymentStatus.PAID, PaymentTrigger.REFUND_PART): Transition(PaymentStatus.PARTIALLY_REFUNDED),
    (PaymentStatus.PAID, PaymentTrigger.REFUND_REST): Transition(PaymentStatus.REFUNDED),
    # A further partial refund does not change the status (not in the spec's table).
    (PaymentStatus.PARTIALLY_REFUNDED, PaymentTrigger.REFUND_PART): Transition(
        PaymentStatus.PARTIALLY_REFUNDED
    ),
    (PaymentStatus.PARTIALLY_REFUNDED, PaymentTrigger.REFUND_REST): Transition(
        PaymentStatus.REFUNDED
    ),
}


def find_transition(status: PaymentStatus, trigger: PaymentTrigger) -> Transition:
    """Return the transition for a trigger; raises `INVALID_TRANSITION` if there is none."""
    transition = TRANSITIONS.get((status, trigger))
    if transition is None:
        raise RefusedError(
            ErrorCode.INVALID_TRANSITION, f"a payment in {status} status does not allow '{trigger}'"
        )
    return transition


class SessionStatus(StrEnum):
    """A session's status (column `life`); only a gateway's report ends a session."""

    OPENING = "opening"  # stored before the gateway is called
    OPEN = "open"  # the buyer can pay with it
    CLOSING = "closing"  # replaced or expired, but the gateway has not closed it yet
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    id: UUID
    payment_id: UUID
    status: SessionStatus
    outcome: str | None
    quote: Quote
    reference: str | None
    next_action: str | None  # JSON text
    return_url: str | None
    inquiries: int  # since it was opened, or since it is closing
    declines: int  # declined attempts that the buyer could retry
    opened_at: datetime
    closing_at: datetime | None

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


#: Time for a second attempt, or for an exact payment after a mismatch.
SECOND_THOUGHT = timedelta(seconds=120)
