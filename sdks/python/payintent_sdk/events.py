"""Events from webhooks and from the event feed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from payintent_sdk.models import DeliveryState, Metadata


@dataclass(frozen=True, kw_only=True)
class CompletedPayment:
    """A paid payment. Fulfil the order once."""

    id: str
    status: str
    currency: str
    amount: str
    payer_uid: str
    receipt_id: str
    provider: str
    paid_at: datetime
    metadata: Metadata


@dataclass(frozen=True, kw_only=True)
class FailedPayment:
    """A payment that failed."""

    id: str
    status: str
    currency: str
    amount: str
    payer_uid: str
    failure_reason: str
    failed_at: datetime
    metadata: Metadata


@dataclass(frozen=True, kw_only=True)
class ExpiredPayment:
    """An expired payment."""

    id: str
    status: str
    currency: str
    amount: str
    payer_uid: str
    expired_at: datetime
    metadata: Metadata


@dataclass(frozen=True, kw_only=True)
class CancelledPayment:
    """A payment that was cancelled."""

    id: str
    status: str
    currency: str
    amount: str
    payer_uid: str
    cancelled_at: datetime
    metadata: Metadata


@dataclass(frozen=True, kw_only=True)
class PaymentCompletedData:
    """The data of `payment.completed`."""

    payment: CompletedPayment


@dataclass(frozen=True, kw_only=True)
class PaymentFailedData:
    """The data of `payment.failed`."""

    payment: FailedPayment


@dataclass(frozen=True, kw_only=True)
class PaymentExpiredData:
    """The data of `payment.expired`."""

    payment: ExpiredPayment


@dataclass(frozen=True, kw_only=True)
class PaymentCancelledData:
    """The data of `payment.cancelled`."""

    payment: CancelledPayment


@dataclass(frozen=True, kw_only=True)
class PaymentCompleted:
    """The event `payment.completed`; `id` is the `webhook-id`."""

    type: Literal["payment.completed"]
    timestamp: datetime
    data: PaymentCompletedData
    id: str = ""


@dataclass(frozen=True, kw_only=True)
class PaymentFailed:
    """The event `payment.failed`; `id` is the `webhook-id`."""

    type: Literal["payment.failed"]
    timestamp: datetime
    data: PaymentFailedData
    id: str = ""


@dataclass(frozen=True, kw_only=True)
class PaymentExpired:
    """The event `payment.expired`; `id` is the `webhook-id`."""

    type: Literal["payment.expired"]
    timestamp: datetime
    data: PaymentExpiredData
    id: str = ""


@dataclass(frozen=True, kw_only=True)
class PaymentCancelled:
    """The event `payment.cancelled`; `id` is the `webhook-id`."""

    type: Literal["payment.cancelled"]
    timestamp: datetime
    data: PaymentCancelledData
    id: str = ""


@dataclass(frozen=True, kw_only=True)
class UnknownEvent:
    """An event of an unknown type. Respond with 2xx and ignore it."""

    type: str
    timestamp: datetime | None
    data: dict[str, Any]
    id: str = ""


#: The `id` is in the webhook's header and next to the event in the feed, but not in the event's
#: body.
Event = PaymentCompleted | PaymentFailed | PaymentExpired | PaymentCancelled | UnknownEvent

#: The class of each kind of event.
KINDS: dict[str, type[Any]] = {
    "payment.completed": PaymentCompleted,
    "payment.failed": PaymentFailed,
    "payment.expired": PaymentExpired,
    "payment.cancelled": PaymentCancelled,
}


@dataclass(frozen=True, kw_only=True)
class EventDelivery:
    """Delivery status of an event's webhook."""

    state: DeliveryState
    attempts: int
    next_attempt_at: datetime | None = None
    delivered_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class FeedEvent:
    """An event of the feed; `id` is the `webhook-id` of its webhook."""

    id: str
    event: Event
    delivery: EventDelivery

    def __post_init__(self) -> None:
        """Set the event's id, so that the same function can handle events and webhooks."""
        object.__setattr__(self, "event", replace(self.event, id=self.id))


@dataclass(frozen=True, kw_only=True)
class EventFeed:
    """Events in feed order. Continue with `after`."""

    data: list[FeedEvent]
    after: str
    has_more: bool


@dataclass(frozen=True, kw_only=True)
class ReplayedEvent:
    """An event whose webhook will be resent."""

    id: str
    delivery: EventDelivery
