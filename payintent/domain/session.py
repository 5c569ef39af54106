"""A session: one attempt to pay at one provider, with the quote that was frozen for it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from payintent.domain.gateway import GatewaySessionRef
from payintent.domain.quote import Quote


class SessionStatus(StrEnum):
    """A session's own life: only the provider's word ends one."""

    OPENING = "opening"  # kept before the provider is asked for it
    OPEN = "open"  # it is, or was, what the buyer pays with
    CLOSING = "closing"  # no longer wanted; the provider has not agreed yet
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session as it is kept."""

    id: UUID
    payment_id: UUID
    status: SessionStatus
    outcome: str | None
    quote: Quote
    reference: str | None
    next_action: str | None  # JSON text
    return_url: str | None
    inquiries: int  # since it opened, or since it is closing
    declines: int  # attempts that were declined, the buyer being free to try again
    opened_at: datetime
    closing_at: datetime | None

    @property
    def gateway_ref(self) -> GatewaySessionRef:
        """Name it as its gateway is told of it."""
        return GatewaySessionRef(
            session_id=self.id,
            reference=self.reference,
            amount_minor=self.quote.total_minor,
            currency=self.quote.price.currency,
            opened_at=self.opened_at,
        )
