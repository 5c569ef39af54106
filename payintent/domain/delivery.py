"""The port between the dispatcher of deliveries and the outbox that stores them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingDelivery:
    """One event on its way to one merchant, claimed by this process until its lease ends."""

    event_id: UUID
    payment_id: UUID
    merchant_id: int
    attempts: int  # attempts made before this one
    url: str
    body: bytes = field(repr=False)
    secrets: Sequence[bytes] = field(repr=False)  # newest first


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """The result of an attempt. Not delivered and no next wait means that the delivery is dead."""

    delivery: OutgoingDelivery
    outcome: str
    status: int | None
    detail: str
    answer: str
    duration_ms: int
    delivered: bool
    next_wait_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitReport:
    """The circuit of a merchant's endpoint opened for `open_s` seconds, or closed where that is 0.

    `detail` says what the last attempt came to.
    """

    merchant_id: int
    open_s: float
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedEvents:
    """Undelivered events to send again, by merchant, time or both; `until` is exclusive."""

    merchant_id: int | None = None
    since: datetime | None = None
    until: datetime | None = None


class Outbox(Protocol):
    async def due_merchants(self) -> list[int]: ...

    async def claim(self, limits: Sequence[tuple[int, int]]) -> list[OutgoingDelivery]:
        """Claim due deliveries; `limits` has `(merchant_id, limit)`, the most for each merchant."""
        ...

    async def record(self, outcomes: Sequence[DeliveryResult]) -> None:
        """Store attempts and the new state of their deliveries."""
        ...

    async def release(self, merchant_id: int) -> None:
        """Make all of a merchant's deliveries due now, because its endpoint answers again."""
        ...

    async def show_circuits(self, reports: Sequence[CircuitReport]) -> None:
        """Store which circuits opened or closed, in this order, so that operators see it."""
        ...
