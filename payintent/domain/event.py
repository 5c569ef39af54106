"""The event types for merchants, with the payload fields of spec section 6.1."""

from enum import StrEnum

#: A merchant's first read of the feed starts this long ago.
FEED_DAYS = 30


class EventType(StrEnum):
    """Each type ends a payment, so a payment has at most one event."""

    COMPLETED = "payment.completed"
    FAILED = "payment.failed"
    EXPIRED = "payment.expired"
    CANCELLED = "payment.cancelled"


COMMON_FIELDS = ("id", "status", "currency", "amount", "payer_uid")
OWN_FIELDS: dict[EventType, tuple[str, ...]] = {
    EventType.COMPLETED: ("receipt_id", "provider", "paid_at"),
    EventType.FAILED: ("failure_reason", "failed_at"),
    EventType.EXPIRED: ("expired_at",),
    EventType.CANCELLED: ("cancelled_at",),
}


def event_payload_fields(kind: EventType) -> tuple[str, ...]:
    """Return the field names of `data.payment` in their order; `metadata` is last."""
    return (*COMMON_FIELDS, *OWN_FIELDS[kind], "metadata")
