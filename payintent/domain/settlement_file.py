"""What a gateway's own list of payments, refunds and payouts is: its lines, and its layouts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFileLine:
    """One payment, refund, or move of a disputed payment's money, of a gateway's list."""

    number: int
    type: str  # payment, refund, dispute or dispute_reversal
    reference: str  # the gateway's
    our_id: UUID | None  # of a session or a refund, as the list has it
    amount: Decimal  # in units of the currency
    currency: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPayout:
    """A payout that a gateway's list has, in minor units."""

    reference: str  # the gateway's
    amount_minor: int  # what came to the bank
    fee_minor: int | None  # what the gateway kept; None: the list does not say
    currency: str
    paid_on: date | None  # None: the list does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class PayoutLine:
    number: int
    payout: ListedPayout
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """The columns of one kind of file, a CSV.

    `read` gets the number of a line and its cells; it returns None for a line that is no payment,
    refund or payout, and raises `ValueError`, which says why, for one that cannot be read.
    """

    name: str
    #: Tells by its first line whether a file has this layout.
    matches: Callable[[Sequence[str]], bool]
    read: Callable[[int, Sequence[str]], ProviderFileLine | PayoutLine | None]
    has_header: bool = True  # the first line names columns
    encoding: str = "utf-8-sig"
    #: Its lines name the order that was paid, of us or of the gateway, and refunds have no name.
    names_orders: bool = False
