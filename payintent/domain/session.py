"""A session: an attempt to pay at a gateway, with a frozen quote."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from payintent.domain.gateway import GatewaySessionRef
from payintent.domain.quote import Quote


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
