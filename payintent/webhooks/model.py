"""The event types for merchants, with the payload fields of spec section 6.1."""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID


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


_GONE = 410


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingDelivery:
    """A delivery that this process has claimed until the lease ends."""

    event_id: UUID
    payment_id: UUID
    merchant_id: int
    attempts: int  # previous attempts
    url: str
    body: bytes = field(repr=False)
    secrets: Sequence[bytes] = field(repr=False)  # decrypted, newest first


class AttemptOutcome(StrEnum):
    DELIVERED = "delivered"
    HTTP_ERROR = "http_error"
    TIMEOUT = "timeout"
    CONNECT_ERROR = "connect_error"
    BLOCKED = "blocked"  # the URL or its address must not be called
    TLS_ERROR = "tls_error"
    BAD_ANSWER = "bad_answer"  # not HTTP, truncated, or with too large headers
    REDIRECT = "redirect"  # never followed


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """The result of an attempt: `detail` is our short text, `answer` the start of their answer."""

    outcome: AttemptOutcome
    status: int | None = None
    detail: str = ""
    answer: str = ""
    retry_after_s: int | None = None
    duration_ms: int = 0

    @property
    def ok(self) -> bool:
        return self.outcome is AttemptOutcome.DELIVERED

    @property
    def gone(self) -> bool:
        return self.status == _GONE


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    delivery: OutgoingDelivery
    attempt: AttemptResult
    next_wait_s: float | None  # None: no retry, so a failed delivery is dead


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitReport:
    """A merchant's endpoint circuit that opened for `open_s` seconds, or closed if that is 0.

    `detail` describes the last attempt.
    """

    merchant_id: int
    open_s: float
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedEvents:
    """Undelivered events to resend, by merchant, time or both; `until` is exclusive."""

    merchant_id: int | None = None
    since: datetime | None = None
    until: datetime | None = None


SIGNATURES_MAX = 3  # per delivery, while secrets rotate


def sign(keys: Sequence[bytes], webhook_id: str, timestamp_s: int, body: bytes) -> str:
    """Return the `webhook-signature` header: `v1,<base64>` for the three newest keys.

    `keys` are sorted from new to old. The id must not contain a dot, which would make the signed
    text ambiguous.
    """
    if not keys or not webhook_id or "." in webhook_id:
        raise ValueError("a signature needs a key, and a webhook id without a dot")
    text = b"%s.%d.%s" % (webhook_id.encode(), timestamp_s, body)
    digests = (hmac.digest(key, text, hashlib.sha256) for key in keys[:SIGNATURES_MAX])
    return " ".join("v1," + base64.b64encode(digest).decode() for digest in digests)
