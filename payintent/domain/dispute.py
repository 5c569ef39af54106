"""Disputes: a buyer's bank claims money back, and how far that claim has come."""

from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from payintent.domain.gateway import DisputedFunds, DisputeReport, DisputeState

_RANKS = {
    DisputeState.INQUIRY: 0,
    DisputeState.OPEN: 1,
    DisputeState.UNDER_REVIEW: 2,
    DisputeState.WON: 3,
    DisputeState.LOST: 3,
    DisputeState.CLOSED: 3,
}
_FUNDS_RANKS = {
    DisputedFunds.UNTOUCHED: 0,
    DisputedFunds.WITHDRAWN: 1,
    DisputedFunds.REINSTATED: 2,
}
#: States in which the disputed money may not be refunded: the bank takes it, or has taken it.
HOLDING = frozenset({DisputeState.OPEN, DisputeState.UNDER_REVIEW, DisputeState.LOST})


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispute:
    """One stored dispute; amounts in the capture's minor units."""

    id: UUID
    capture_id: UUID
    case_id: UUID
    account_id: int
    reference: str  # the gateway's own, unique within the account
    state: DisputeState
    funds: DisputedFunds
    amount_minor: int
    currency: str
    reason: str
    respond_by: datetime | None

    @property
    def held_minor(self) -> int:
        return self.amount_minor if self.state in HOLDING else 0


def follow(dispute: Dispute, report: DisputeReport) -> Dispute:
    """Apply a report: reports may come late and out of order, and a state never goes back.

    Only an appeal begins anew what was lost. What a stale report says of money that was withdrawn
    or reinstated still counts.
    """
    funds = max(dispute.funds, report.funds, key=_FUNDS_RANKS.__getitem__)
    appealed = report.appeal and dispute.state is DisputeState.LOST
    if _RANKS[report.state] < _RANKS[dispute.state] and not appealed:
        return replace(dispute, funds=funds)
    return replace(
        dispute,
        state=report.state,
        funds=funds,
        amount_minor=report.amount_minor,
        currency=report.currency,
        reason=report.reason or dispute.reason,
        respond_by=report.respond_by or dispute.respond_by,
    )


def comes_back(before: Dispute, after: Dispute) -> bool:
    """Tell whether a dispute that people were done with needs them again.

    An answer is awaited where only a question was; or what was decided is decided otherwise, or
    not any more.
    """
    if after.state is DisputeState.OPEN:
        return before.state is not DisputeState.OPEN
    return after.state is not before.state and _RANKS[before.state] >= _RANKS[after.state]


def refundable(amount: Decimal, left: Decimal, capture_minor: int, free_minor: int) -> Decimal:
    """Return how much of what is left of a payment no dispute holds, unrounded.

    `free_minor` is what is left of its capture of `capture_minor`, without what is disputed.
    """
    if capture_minor == 0:
        return left
    return min(left, amount * free_minor / capture_minor)
