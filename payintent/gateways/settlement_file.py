"""Settlement files: the lines and layouts of a gateway's list of payments, refunds and payouts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFileLine:
    number: int
    type: str  # payment, refund, dispute or dispute_reversal
    reference: str  # the gateway's
    our_id: UUID | None  # of a session or a refund, if the file contains it
    amount: Decimal  # in units of the currency
    currency: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPayout:
    """A payout in a settlement file, in minor units."""

    reference: str  # the gateway's
    amount_minor: int  # without the fee
    fee_minor: int | None  # None: the file does not contain it
    currency: str
    paid_on: date | None  # None: the file does not contain it


@dataclass(frozen=True, slots=True, kw_only=True)
class PayoutLine:
    number: int
    payout: ListedPayout
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """The format of a CSV file.

    `read` parses a line, given its number and cells. It returns None if the line is not a payment,
    refund or payout, and raises `ValueError` with the reason if the line is invalid.
    """

    name: str
    matches: Callable[[Sequence[str]], bool]  # recognises a file by its first line
    read: Callable[[int, Sequence[str]], ProviderFileLine | PayoutLine | None]
    has_header: bool = True  # the first line has the column names
    encoding: str = "utf-8-sig"
    #: Lines identify the paid order, by our id or the gateway's, and refunds have no id.
    identifies_orders: bool = False
