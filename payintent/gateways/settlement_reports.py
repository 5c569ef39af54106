"""Lines of gateways' settlement files, and balance movements from their reporting APIs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFileLine:
    number: int
    type: str  # payment, refund, dispute or dispute_reversal
    reference: str  # assigned by the gateway
    our_id: UUID | None  # session or refund id, if the file contains it
    amount: Decimal  # in units of the currency
    currency: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPayout:
    """A payout in a settlement file. Amounts are in minor units."""

    reference: str  # assigned by the gateway
    amount_minor: int  # excludes the fee
    fee_minor: int | None  # None if the file does not contain it
    currency: str
    paid_on: date | None  # None if the file does not contain it


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
    has_header: bool = True  # the first line contains the column names
    encoding: str = "utf-8-sig"
    #: References are the order numbers of sessions or captures, even on refund lines.
    identifies_orders: bool = False


class MovementKind(StrEnum):
    PAYMENT = "payment"
    REFUND = "refund"
    DISPUTE = "dispute"
    DISPUTE_REVERSAL = "dispute_reversal"
    PAYOUT = "payout"
    PAYOUT_REVERSAL = "payout_back"  # a failed or cancelled payout


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceMovement:
    """A change to our balance at a gateway."""

    kind: MovementKind
    reference: str  # the gateway's reference for the payment, refund, dispute or payout
    amount_minor: int
    currency: str
    at: datetime
    paid_on: date | None = None  # payouts only
    our_id: UUID | None = None  # refunds only
    capture: str | None = None  # refunds only: the reference of the refunded capture


@dataclass(frozen=True, slots=True, kw_only=True)
class MovementPage:
    movements: Sequence[BalanceMovement]
    after: str | None  # the cursor of the next page; None on the last page
