"""The port between the dispatcher, which sends deliveries, and the outbox, which stores them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

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
    secrets: Sequence[bytes] = field(repr=False)  # newest first


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


class Outbox(Protocol):
    async def due_merchants(self) -> list[int]: ...

    async def claim(self, limits: Sequence[tuple[int, int]]) -> list[OutgoingDelivery]:
        """Claim due deliveries; `limits` has the maximum per merchant, `(merchant_id, limit)`."""
        ...

    async def record(self, outcomes: Sequence[DeliveryResult]) -> None:
        """Store attempts and the new states of their deliveries."""
        ...

    async def release(self, merchant_id: int) -> None:
        """Make all of a merchant's deliveries due now, because its endpoint has recovered."""
        ...

    async def store_circuits(self, reports: Sequence[CircuitReport]) -> None:
        """Store opened and closed circuits, in this order, for display to operators."""
        ...
