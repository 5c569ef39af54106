"""The dispute record and its state transitions."""

from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from payintent.gateways.port import (
    UNREFUNDABLE_DISPUTE_STATES,
    DisputedFunds,
    DisputeReport,
    DisputeState,
)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispute:
    id: UUID
    capture_id: UUID
    case_id: UUID
    account_id: int
    reference: str  # the gateway's id, unique within the account
    state: DisputeState
    funds: DisputedFunds
    amount_minor: int  # in minor units of `currency`
    currency: str
    reason: str
    respond_by: datetime | None

    @property
    def held_minor(self) -> int:
        return self.amount_minor if self.state in UNREFUNDABLE_DISPUTE_STATES else 0


def apply_report(dispute: Dispute, report: DisputeReport) -> Dispute:
    """Return the dispute updated with a report. Reports may arrive late or out of order.

    The state never moves backwards, unless the merchant appeals a lost dispute. A stale report can
    still record that money was withdrawn or reinstated.
    """
    funds = max(dispute.funds, report.funds, key=_FUNDS_RANKS.__getitem__)
    is_appealed = report.is_appeal and dispute.state is DisputeState.LOST
    if _RANKS[report.state] < _RANKS[dispute.state] and not is_appealed:
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


def needs_reopening(dispute: Dispute, changed_dispute: Dispute) -> bool:
    """Return whether a dispute's closed case must be reopened.

    A case is reopened if an inquiry becomes a dispute that needs a response, or if a decision is
    changed or appealed.
    """
    if changed_dispute.state is DisputeState.OPEN:
        return dispute.state is not DisputeState.OPEN
    return (
        changed_dispute.state is not dispute.state
        and _RANKS[dispute.state] >= _RANKS[changed_dispute.state]
    )


def compute_undisputed_amount(
    amount: Decimal, remainder: Decimal, capture_minor: int, undisputed_minor: int
) -> Decimal:
    """Return the undisputed part of a payment's `remainder`, unrounded.

    `capture_minor` is the captured amount. `undisputed_minor` is the part of it that is
    neither refunded nor disputed.
    """
    if capture_minor == 0:
        return remainder
    return min(remainder, amount * undisputed_minor / capture_minor)
