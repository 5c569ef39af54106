"""What moved a gateway's balance of us, as its reporting API lists it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Protocol, runtime_checkable
from uuid import UUID

from payintent.domain.gateway import GatewayAccount, OutcomeUnknown


class MovementKind(StrEnum):
    PAYMENT = "payment"
    REFUND = "refund"
    DISPUTE = "dispute"  # what a dispute took
    DISPUTE_REVERSAL = "dispute_reversal"  # what it gave back
    PAYOUT = "payout"
    PAYOUT_BACK = "payout_back"  # a payout that has failed, or was cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceMovement:
    kind: MovementKind
    reference: str  # of the payment, the refund, the dispute or the payout
    our_id: UUID | None  # of a refund
    amount_minor: int
    currency: str
    at: datetime
    paid_on: date | None = None  # of a payout
    capture: str | None = None  # of a refund: the reference of the refunded money


@dataclass(frozen=True, slots=True, kw_only=True)
class MovementPage:
    movements: Sequence[BalanceMovement]
    after: str | None


@runtime_checkable
class ReportingGateway(Protocol):
    """A gateway that lists what moved our balance. Calls end within 15 s."""

    async def list_movements(
        self, account: GatewayAccount, since: datetime, until: datetime, after: str | None
    ) -> MovementPage | OutcomeUnknown:
        """List movements from `since` to before `until`; those that are none of these are left out.

        An answer that cannot be read is `OutcomeUnknown`.
        """
        ...

    async def sum_payout_fees(
        self, account: GatewayAccount, reference: str
    ) -> int | OutcomeUnknown:
        """Sum what the gateway kept of what a payout settled, in minor units; 0: it tells none."""
        ...
