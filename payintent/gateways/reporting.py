"""Movements of our balance at a gateway, as listed by its reporting API."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Protocol, runtime_checkable
from uuid import UUID

from payintent.gateways.port import GatewayAccount, OutcomeUnknown


class MovementKind(StrEnum):
    PAYMENT = "payment"
    REFUND = "refund"
    DISPUTE = "dispute"
    DISPUTE_REVERSAL = "dispute_reversal"
    PAYOUT = "payout"
    PAYOUT_REVERSAL = "payout_back"  # a failed or cancelled payout


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceMovement:
    kind: MovementKind
    reference: str  # of the payment, the refund, the dispute or the payout
    amount_minor: int
    currency: str
    at: datetime
    paid_on: date | None = None  # of a payout
    our_id: UUID | None = None  # of a refund
    capture: str | None = None  # of a refund: the reference of the refunded money


@dataclass(frozen=True, slots=True, kw_only=True)
class MovementPage:
    movements: Sequence[BalanceMovement]
    after: str | None


@runtime_checkable
class ReportingGateway(Protocol):
    """A gateway with a reporting API. Calls take at most 15 s."""

    async def list_movements(
        self, account: GatewayAccount, since: datetime, until: datetime, after: str | None
    ) -> MovementPage | OutcomeUnknown:
        """List the movements from `since` to before `until`."""
        ...

    async def sum_payout_fees(
        self, account: GatewayAccount, reference: str
    ) -> int | OutcomeUnknown:
        """Sum the gateway's fees of a payout, in minor units; 0 if it does not report them."""
        ...
