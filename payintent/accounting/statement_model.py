"""Statements: the changes of a merchant's balance by kind, with amounts in minor units.

A positive amount increases the amount that the merchant is owed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from payintent.accounting.model import Fact


class Movement(StrEnum):
    PAYMENTS = "payments"  # before fee and tax
    FEES = "fees"
    TAX = "tax"
    REFUNDS = "refunds"
    DISPUTES = "disputes"
    ADJUSTMENTS = "adjustments"
    PAYOUTS = "payouts"


class Part(StrEnum):
    PAYABLE = "payable"
    FEE = "fee"
    TAX = "tax"


#: The facts that change `merchant_payable`, with the kind of movement.
MOVEMENTS = {
    Fact.CAPTURE: Movement.PAYMENTS,
    Fact.CAPTURE_ADOPTED: Movement.PAYMENTS,
    Fact.CASE_ACCEPTED: Movement.PAYMENTS,
    Fact.REFUND_RESERVED: Movement.REFUNDS,
    Fact.REFUND_REVERSED: Movement.REFUNDS,
    Fact.DISPUTE_OPENED: Movement.DISPUTES,
    Fact.DISPUTE_MOVED: Movement.DISPUTES,
    Fact.DISPUTE_WON: Movement.DISPUTES,
    Fact.DISPUTE_LOST: Movement.DISPUTES,
    Fact.ADJUSTMENT: Movement.ADJUSTMENTS,
    Fact.GATEWAY_PAYOUT: Movement.PAYOUTS,  # of the merchant's own account
    Fact.PAYOUT: Movement.PAYOUTS,
}
_CHARGES = {Part.FEE: Movement.FEES, Part.TAX: Movement.TAX}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySum:
    """The sum of the entries of a fact and part; positive in the merchant's favour."""

    fact: Fact
    part: Part
    amount_minor: int


def sum_movements(sums: Iterable[EntrySum]) -> dict[Movement, int]:
    """Sum each movement; payments include fee and tax, which are deducted separately."""
    movements = dict.fromkeys(Movement, 0)
    for entry in sums:
        movements[MOVEMENTS[entry.fact]] += entry.amount_minor
        if entry.part is not Part.PAYABLE:
            movements[Movement(_CHARGES[entry.part])] -= entry.amount_minor
    return movements


def fact_label(fact: str) -> str:
    """Return the name of a ledger fact for people, such as `refund reserved`."""
    return fact.replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementView:
    """A statement with amounts in units, or in smallest units of an unknown token."""

    id: str
    merchant_id: int
    currency: str
    chain: str | None
    number: int  # consecutive by merchant and currency, from 1
    day: date
    time_zone: str
    opening: str
    payments: str
    fees: str
    tax: str
    refunds: str
    disputes: str
    adjustments: str
    payouts: str
    closing: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementLineView:
    """The movement of a payment, refund, dispute, case, adjustment or payout."""

    at: str
    kind: str
    fact: str
    id: str  # of the refund or case, otherwise of the capture, dispute, payout or adjustment
    payment_id: str | None
    amount: str  # of a payment: before fee and tax
    fee: str
    tax: str
    net: str


def end_of_day(day: date, zone: str) -> datetime:
    return datetime.combine(day + timedelta(days=1), time.min, ZoneInfo(zone))


def day_of(moment: datetime, zone: str) -> date:
    return moment.astimezone(ZoneInfo(zone)).date()
