"""Events for merchants: four types, each with exactly the fields of spec section 6.1."""

from enum import StrEnum

#: For how long an event is in the feed of who reads it for the first time.
FEED_DAYS = 30


class EventType(StrEnum):
    """The types of event; each ends a payment, so a payment has one event at most."""

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
    """Return the names of the fields of `data.payment` in their order; `metadata` comes last."""
    return (*COMMON_FIELDS, *OWN_FIELDS[kind], "metadata")
