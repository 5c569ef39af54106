"""A session: one attempt to pay at one gateway, with its frozen quote."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from payintent.domain.gateway import GatewaySessionRef
from payintent.domain.quote import Quote


class SessionStatus(StrEnum):
    """A session's status (column `life`); only a gateway's report ends a session."""

    OPENING = "opening"  # stored before the gateway is asked to open it
    OPEN = "open"  # the buyer pays with it, or did before another was selected
    CLOSING = "closing"  # no longer wanted; the gateway has not agreed yet
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
    inquiries: int  # since it opened, or since it is closing
    declines: int  # declined attempts after which the buyer could try again
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
