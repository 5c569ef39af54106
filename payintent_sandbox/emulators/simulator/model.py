"""The simulator's data: accounts, sessions with their captures, and refunds."""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct

from payintent_sandbox.emulators.simulator.cards import Card

#: Decimals of the currencies that this gateway accepts.
DECIMALS = {"USD": 2, "THB": 2, "TWD": 2, "IDR": 2, "PHP": 2, "JPY": 0}
_REFERENCE = r"^(?!ps_|re_)[0-9A-Za-z_-]{1,64}\Z"  # cannot be confused with a simulator id

Url = Annotated[str, Meta(pattern=r"^https?://[^\s/]", max_length=2048)]
Reference = Annotated[str, Meta(pattern=_REFERENCE)]


class Status(StrEnum):
    """The status of a session: it starts open and ends once."""

    OPEN = "open"
    AUTHORISING = "authorising"  # the buyer is completing the challenge
    PAID = "paid"
    DECLINED = "declined"
    CANCELLED = "cancelled"  # by the buyer
    CLOSED = "closed"  # by the merchant
    EXPIRED = "expired"


class RefundStatus(StrEnum):
    """The status of a refund. Only `pending` changes, and only once."""

    PENDING = "pending"
    SUCCEEDED = "succeeded"
    REFUSED = "refused"


class RefusalError(Exception):
    """A rejected request, with an HTTP status and a reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Account:
    """A merchant of this gateway."""

    api_key: Annotated[str, Meta(min_length=1)] = field(repr=False)
    signing_secret: Annotated[str, Meta(min_length=1)] = field(repr=False)


class Order(Struct, frozen=True, kw_only=True):
    """The body of `POST /v1/sessions`."""

    reference: Reference  # chosen by the merchant; also the idempotency key
    amount_minor: Annotated[int, Meta(ge=1, le=10**15)]
    currency: str
    description: Annotated[str, Meta(max_length=500)]
    return_url: Url
    callback_url: Url
    expires_at: Annotated[datetime, Meta(tz=True)]
    locale: Annotated[str, Meta(max_length=35)] | None = None


class RefundOrder(Struct, frozen=True, kw_only=True):
    """The body of `POST /v1/refunds`."""

    reference: Reference  # chosen by the merchant; also the idempotency key
    capture: str
    amount_minor: Annotated[int, Meta(ge=1, le=10**15)]
    currency: str
    callback_url: Url


@dataclass(slots=True, kw_only=True)
class Refund:
    """A refund of a capture, in any status."""

    id: str
    account: Account
    order: RefundOrder
    status: RefundStatus
    reason: str | None = None

    def view(self) -> dict[str, Any]:
        """Return the JSON that the merchant reads."""
        fields: dict[str, Any] = {
            "id": self.id,
            "reference": self.order.reference,
            "capture": self.order.capture,
            "amount_minor": self.order.amount_minor,
            "currency": self.order.currency,
            "status": self.status.value,
        }
        return fields | ({"reason": self.reason} if self.reason else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """A capture of money, and its refunds."""

    id: str
    amount_minor: int
    currency: str
    at: datetime
    refunds: list[Refund] = field(default_factory=list[Refund])

    @property
    def refunded_minor(self) -> int:
        """The sum of successful and pending refunds."""
        counted = [refund for refund in self.refunds if refund.status is not RefundStatus.REFUSED]
        return sum(refund.order.amount_minor for refund in counted)


@dataclass(slots=True, kw_only=True)
class Session:
    """A buyer's attempt to pay an order."""

    id: str
    account: Account
    order: Order
    pay_url: str
    status: Status = Status.OPEN
    capture: Capture | None = None
    decline_code: str | None = None
    card: Card | None = None  # the buyer's card; a session accepts a single card

    @property
    def live(self) -> bool:
        """Whether the session has not ended."""
        return self.status in {Status.OPEN, Status.AUTHORISING}

    @property
    def payable(self) -> bool:
        """Whether the session accepts a card."""
        return self.status is Status.OPEN and self.card is None

    def view(self) -> dict[str, Any]:
        """Return the JSON that the merchant reads."""
        fields: dict[str, Any] = {
            "id": self.id,
            "reference": self.order.reference,
            "status": self.status.value,
            "pay_url": self.pay_url,
            "amount_minor": self.order.amount_minor,
            "currency": self.order.currency,
        }
        if self.capture:
            fields["capture"] = {
                "id": self.capture.id,
                "amount_minor": self.capture.amount_minor,
                "currency": self.capture.currency,
                "at": rfc3339(self.capture.at),
                "refunded_minor": self.capture.refunded_minor,
            }
        if self.decline_code:
            fields["decline_code"] = self.decline_code
        return fields


def utc_now() -> datetime:
    """Return the current time, in UTC."""
    return datetime.now(UTC)


def rfc3339(moment: datetime) -> str:
    """Format a time in UTC, with milliseconds and `Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def amount_text(amount_minor: int, currency: str) -> str:
    """Format an amount in major units, such as `13.13`."""
    decimals = DECIMALS[currency]
    whole, fraction = divmod(amount_minor, 10**decimals)
    return f"{whole}.{fraction:0{decimals}}" if decimals else str(whole)


def is_amount(text: str, amount_minor: int, currency: str) -> bool:
    """Return whether a plain decimal equals this amount."""
    whole, _, fraction = text.partition(".")
    decimals = DECIMALS[currency]
    if not re.fullmatch(r"[0-9]{1,18}", whole) or not re.fullmatch(r"[0-9]{0,18}", fraction):
        return False
    if fraction[decimals:].strip("0"):
        return False
    return int(whole + fraction[:decimals].ljust(decimals, "0")) == amount_minor
