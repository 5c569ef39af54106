"""Statements: the changes to a merchant's balance by kind, with amounts in minor units.

Positive amounts increase the balance owed to the merchant.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from payintent.accounting.model import Fact


class Movement(StrEnum):
    PAYMENTS = "payments"  # before fees and tax
    FEES = "fees"
    TAX = "tax"
    REFUNDS = "refunds"
    DISPUTES = "disputes"
    ADJUSTMENTS = "adjustments"
    PAYOUTS = "payouts"


class EntryComponent(StrEnum):
    PAYABLE = "payable"
    FEE = "fee"
    TAX = "tax"


#: The movement under which a statement lists each fact that changes `merchant_payable`.
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
    Fact.GATEWAY_PAYOUT: Movement.PAYOUTS,  # from the merchant's own gateway account
    Fact.PAYOUT: Movement.PAYOUTS,
}
_CHARGES = {EntryComponent.FEE: Movement.FEES, EntryComponent.TAX: Movement.TAX}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySum:
    """The sum of entries by fact and component; positive amounts are in the merchant's favour."""

    fact: Fact
    component: EntryComponent
    amount_minor: int


def sum_movements(sums: Iterable[EntrySum]) -> dict[Movement, int]:
    """Sum the entries by movement. Payments are gross; fees and tax are deducted separately."""
    movements = dict.fromkeys(Movement, 0)
    for entry in sums:
        movements[MOVEMENTS[entry.fact]] += entry.amount_minor
        if entry.component is not EntryComponent.PAYABLE:
            movements[Movement(_CHARGES[entry.component])] -= entry.amount_minor
    return movements


def format_fact(fact: str) -> str:
    """Return a human-readable name for a ledger fact, such as `refund reserved`."""
    return fact.replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementView:
    """A statement with amounts in currency units, or in smallest units for unknown tokens."""

    id: str
    merchant_id: int
    currency: str
    chain: str | None
    number: int  # consecutive per merchant and currency, starting at 1
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
    """The effect of a payment, refund, dispute, case, adjustment or payout on the balance."""

    at: str
    kind: str
    fact: str
    id: str  # the id of the refund, case, capture, dispute, payout or adjustment
    payment_id: str | None
    amount: str  # for payments: before fees and tax
    fee: str
    tax: str
    net: str


def get_end_of_day(day: date, zone: str) -> datetime:
    return datetime.combine(day + timedelta(days=1), time.min, ZoneInfo(zone))


def get_local_date(at: datetime, zone: str) -> date:
    return at.astimezone(ZoneInfo(zone)).date()
