"""A session: one attempt to pay at one provider, with the quote that was frozen for it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from payintent.domain.gateway import GatewaySessionRef
from payintent.domain.quote import Price


class SessionStatus(StrEnum):
    """A session's own life: only the provider's word ends one."""

    OPENING = "opening"  # kept before the provider is asked for it
    OPEN = "open"  # it is, or was, what the buyer pays with
    CLOSING = "closing"  # no longer wanted; the provider has not agreed yet
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class ExpectedToken:
    """The token that a quote was made in, as it was then; 20 zero bytes are a chain's own coin."""

    address: bytes
    decimals: int
    approve_zero_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A quote and what it is for: one payment method in one country."""

    payment_method_id: int
    account_id: int
    provider: str
    provider_name: str  # what the outside calls it
    kind: str
    label: str
    country: str
    chain: str | None
    token: str | None
    price: Price
    total_minor: int  # smallest units of what is paid
    expected_token: ExpectedToken | None = None


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
