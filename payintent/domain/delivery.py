"""The port between what must be delivered and what delivers it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingDelivery:
    """One event on its way to one merchant; taken by this process for the length of a lease."""

    event_id: UUID
    merchant_id: int
    attempts: int  # that were made before
    url: str
    body: bytes = field(repr=False)
    secrets: Sequence[bytes] = field(repr=False)  # newest first


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """What became of a delivery. Not delivered and no next wait is the end: dead."""

    delivery: OutgoingDelivery
    outcome: str
    status: int | None
    detail: str
    answer: str
    duration_ms: int
    delivered: bool
    next_wait_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedEvents:
    """Events that did not arrive, of a merchant or a time or both; `until` is exclusive."""

    merchant_id: int | None = None
    since: datetime | None = None
    until: datetime | None = None


class Outbox(Protocol):
    """Where deliveries wait."""

    async def due_merchants(self) -> list[int]:
        """Name the merchants that have something due, the longest waiting first."""
        ...

    async def claim(self, rooms: Sequence[tuple[int, int]]) -> list[OutgoingDelivery]:
        """Take due deliveries: `(merchant_id, room)`, of each merchant at most its room."""
        ...

    async def record(self, outcomes: Sequence[DeliveryResult]) -> None:
        """Keep attempts and what follows from them."""
        ...

    async def release(self, merchant_id: int) -> None:
        """Make everything of a merchant due now, for it has just come back."""
        ...
