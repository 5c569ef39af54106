"""Webhook values: event types, attempt results and signatures."""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from payintent.merchants.model import SIGNING_SECRETS_MAX


class EventType(StrEnum):
    """Event types. Each type reports the end of a payment, so a payment has at most one event."""

    COMPLETED = "payment.completed"
    FAILED = "payment.failed"
    EXPIRED = "payment.expired"
    CANCELLED = "payment.cancelled"


_COMMON_FIELDS = ("id", "status", "currency", "amount", "payer_uid")
_FIELDS_BY_TYPE: dict[EventType, tuple[str, ...]] = {
    EventType.COMPLETED: ("receipt_id", "provider", "paid_at"),
    EventType.FAILED: ("failure_reason", "failed_at"),
    EventType.EXPIRED: ("expired_at",),
    EventType.CANCELLED: ("cancelled_at",),
}


def list_event_payload_fields(event_type: EventType) -> tuple[str, ...]:
    """Return the field names of `data.payment` in payload order (spec section 6.1)."""
    return (*_COMMON_FIELDS, *_FIELDS_BY_TYPE[event_type], "metadata")


_GONE = 410


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingDelivery:
    """A delivery that this process has claimed until its lease expires."""

    event_id: UUID
    payment_id: UUID
    merchant_id: int
    attempts: int  # since the last replay
    url: str
    is_public_only: bool = False  # private networks are forbidden, regardless of the settings
    body: bytes = field(repr=False)
    secrets: Sequence[bytes] = field(repr=False)  # decrypted, newest first


class AttemptOutcome(StrEnum):
    DELIVERED = "delivered"
    HTTP_ERROR = "http_error"
    TIMEOUT = "timeout"
    CONNECT_ERROR = "connect_error"
    BLOCKED = "blocked"  # the egress rules forbid the URL or its address
    TLS_ERROR = "tls_error"
    BAD_RESPONSE = "bad_answer"  # not HTTP, truncated, or with oversized headers
    REDIRECT = "redirect"  # redirects are not followed


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    outcome: AttemptOutcome
    status: int | None = None
    detail: str = ""  # our description of the outcome
    answer: str = ""  # the start of the endpoint's response body
    retry_after_s: int | None = None
    duration_ms: int = 0

    @property
    def succeeded(self) -> bool:
        return self.outcome is AttemptOutcome.DELIVERED

    @property
    def is_gone(self) -> bool:
        return self.status == _GONE


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitReport:
    """A change in the state of an endpoint's circuit breaker."""

    merchant_id: int
    open_s: float  # 0: the circuit has closed
    detail: str  # outcome of the attempt that caused the change


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedEvents:
    """Selects undelivered events by merchant, time or both; `until` is exclusive."""

    merchant_id: int | None = None
    since: datetime | None = None
    until: datetime | None = None


def sign(keys: Sequence[bytes], webhook_id: str, timestamp_s: int, body: bytes) -> str:
    """Return the `webhook-signature` header, with a `v1,<base64>` entry per key.

    `keys` must be sorted from newest to oldest; only the first three are used. A dot in the webhook
    ID would make the signed text ambiguous, so it is rejected.
    """
    if not keys or not webhook_id or "." in webhook_id:
        raise ValueError("a signature requires a key, and a webhook ID without a dot")
    text = b"%s.%d.%s" % (webhook_id.encode(), timestamp_s, body)
    digests = (hmac.digest(key, text, hashlib.sha256) for key in keys[:SIGNING_SECRETS_MAX])
    return " ".join("v1," + base64.b64encode(digest).decode() for digest in digests)
