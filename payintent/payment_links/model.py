"""Payment links: their terms, their state, and the range of amounts that a buyer can enter."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from uuid import UUID

from payintent.core.errors import ErrorCode, RefusedError
from payintent.core.money import parse_amount

#: Highest possible limit on a link's uses. Finding a free use requires reading all uses.
USES_MAX = 10_000
TITLE_CHARS_MAX = 120  # the length that the checkout page can show
DESCRIPTION_CHARS_MAX = 500
ORDER_ID_CHARS_MAX = 120


class LinkState(StrEnum):
    OPEN = "OPEN"
    INACTIVE = "INACTIVE"  # deactivated
    EXPIRED = "EXPIRED"
    USED_UP = "USED_UP"  # every use has an open or paid payment


@dataclass(frozen=True, slots=True)
class AmountRange:
    """The bounds of an amount that the buyer enters. None means the general limit for payments."""

    minimum: Decimal | None = None
    maximum: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTerms:
    """The product that is sold with a link, and its price. The terms never change."""

    title: str
    description: str | None
    order_id: str | None
    currency: str
    amount: Decimal | None  # None: the buyer enters an amount in `amount_range`
    amount_text: str | None  # exactly as received
    amount_range: AmountRange
    max_uses: int | None  # None: no limit
    expires_at: datetime | None
    return_url: str | None
    cancel_url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentLink:
    """A stored payment link."""

    id: UUID
    merchant_id: int
    token: str  # anyone who has it can pay
    terms: LinkTerms
    created_by: str
    created_at: datetime
    deactivated_at: datetime | None

    def find_closed_state(self, now: datetime) -> LinkState | None:
        """Return why the link is closed, or None. The number of uses is not considered."""
        if self.deactivated_at is not None:
            return LinkState.INACTIVE
        if self.terms.expires_at is not None and self.terms.expires_at <= now:
            return LinkState.EXPIRED
        return None

    def find_state(self, now: datetime, *, is_used_up: bool) -> LinkState:
        open_state = LinkState.USED_UP if is_used_up else LinkState.OPEN
        return self.find_closed_state(now) or open_state


class LinkClosedError(RefusedError):
    """The link does not accept payments; `state` is the reason."""

    def __init__(self, state: LinkState) -> None:
        super().__init__(ErrorCode.CONFLICT, f"the payment link is {state}")
        self.state = state


def choose_amount(
    terms: LinkTerms, entered_amount: str | None, minimum: Decimal, maximum: Decimal
) -> str:
    """Return the amount of a payment. An entered amount is used only if the link has no amount.

    `minimum` and `maximum` are the general limits for payments. Raises `INVALID_AMOUNT`.
    """
    if terms.amount_text is not None:
        return terms.amount_text
    text = entered_amount or ""
    bounds = terms.amount_range
    lowest = minimum if bounds.minimum is None else max(minimum, bounds.minimum)
    highest = maximum if bounds.maximum is None else min(maximum, bounds.maximum)
    parse_amount(text, terms.currency, lowest, highest)
    return text


def build_link_url(checkout_base: str, token: str) -> str:
    """Return a link's URL; it is relative if the checkout has no URL of its own."""
    return f"{checkout_base or '/c'}/link/{token}"
