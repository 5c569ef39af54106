"""Statements: what changed what a merchant is owed, by kind. Pure; amounts in minor units.

Amounts have the merchant's sign: what it is owed more is above zero.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from payintent.domain.ledger import Fact


class Movement(StrEnum):
    PAYMENTS = "payments"  # what buyers paid, before fee and tax
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


#: The movement of what an entry does to `merchant_payable`; other facts do nothing to it.
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
_CHARGED = {Part.FEE: Movement.FEES, Part.TAX: Movement.TAX}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySum:
    """The sum of the entries of one fact and part: to the merchant's good, or of fee or tax."""

    fact: Fact
    part: Part
    amount_minor: int


def sum_movements(sums: Iterable[EntrySum]) -> dict[Movement, int]:
    """Return each movement; fee and tax are part of what buyers paid, and taken from it."""
    moved = dict.fromkeys(Movement, 0)
    for entry in sums:
        moved[MOVEMENTS[entry.fact]] += entry.amount_minor
        if entry.part is not Part.PAYABLE:
            moved[Movement(_CHARGED[entry.part])] -= entry.amount_minor
    return moved


def words_of(fact: str) -> str:
    """Return the name of a ledger fact for people, such as `refund reserved`."""
    return fact.replace("_", " ")


def end_of_day(day: date, zone: str) -> datetime:
    return datetime.combine(day + timedelta(days=1), time.min, ZoneInfo(zone))


def day_of(moment: datetime, zone: str) -> date:
    return moment.astimezone(ZoneInfo(zone)).date()
