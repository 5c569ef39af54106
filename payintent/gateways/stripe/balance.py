"""Stripe's balance transactions: what each is, and what Stripe kept of it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Struct

from payintent.domain import ids
from payintent.domain.balance_movement import BalanceMovement, MovementKind
from payintent.gateways.stripe.api import from_stripe_units

#: A page with expanded sources has some 5 KB for each; an answer is bounded.
PAGE = 25
PAGES_MAX = 400  # of one payout
_FEES = frozenset({"fee", "network_cost"})
_ENDED_BADLY = frozenset({"failed", "canceled"})
_PENDING = frozenset({"pending", "requires_action"})
_DISPUTES = {
    "dispute": MovementKind.DISPUTE,
    "dispute_reversal": MovementKind.DISPUTE_REVERSAL,
}
_PAYOUTS = {"payout": MovementKind.PAYOUT, "payout_reversal": MovementKind.PAYOUT_BACK}

_Text = Annotated[str, Meta(pattern=r"^[!-~]{1,255}\Z")]
_Units = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Time = Annotated[int, Meta(ge=0, le=4_102_444_800)]  # the year 2100


class StripeSource(Struct, frozen=True):
    id: _Text
    object: str = ""
    amount: _Units | None = None
    amount_captured: _Units | None = None
    currency: _Text | None = None
    payment_intent: _Text | None = None
    status: str | None = None
    metadata: dict[str, str] | None = None


class StripeBalanceTransaction(Struct, frozen=True):
    """A balance transaction, with the fields that we read; in the currency of the balance."""

    object: Literal["balance_transaction"]
    id: _Text
    amount: _Units
    fee: _Units
    net: _Units
    currency: _Text
    created: _Time
    available_on: _Time
    reporting_category: str
    type: str
    source: StripeSource | str | None = None


class StripeBalancePage(Struct, frozen=True):
    object: Literal["list"]
    data: list[StripeBalanceTransaction]
    has_more: bool


def read_movement(found: StripeBalanceTransaction) -> BalanceMovement | None:
    """Return what a transaction is; None where it is none of these, or does not stand.

    A payment has the amount and currency of its charge: the balance may be kept in another one. So
    has what a dispute took or gave back.
    A refund that has failed is followed by a transaction that undoes it: neither is a line.
    """
    source = found.source
    if not isinstance(source, StripeSource):
        return None
    category = found.reporting_category
    if category == "charge":
        captured = source.amount if source.amount_captured is None else source.amount_captured
        reference = source.payment_intent or source.id
        return _movement(found, MovementKind.PAYMENT, reference, captured, source.currency)
    if category == "refund" and source.status not in _ENDED_BADLY | _PENDING:
        our_id = ids.parse_id(ids.REFUND, (source.metadata or {}).get("refund_id", ""))
        movement = _movement(
            found, MovementKind.REFUND, source.id, source.amount, source.currency, our_id
        )
        return movement and replace(movement, capture=source.payment_intent)
    if (kind := _DISPUTES.get(category)) is not None and source.object == "dispute":
        return _movement(found, kind, source.id, _disputed(found, source), source.currency)
    if (kind := _PAYOUTS.get(category)) is not None:
        units = -found.amount if kind is MovementKind.PAYOUT else found.amount
        return _movement(found, kind, source.id, units, found.currency)
    return None


def _disputed(found: StripeBalanceTransaction, source: StripeSource) -> int | None:
    """Return what was moved, where that is in the dispute's currency; else what is disputed."""
    return abs(found.amount) if found.currency == source.currency else source.amount


def sum_fees(transactions: Sequence[StripeBalanceTransaction]) -> int:
    """Sum what Stripe kept, in its units: the fee of each, and what is a fee as a whole."""
    return sum(
        found.fee - (found.amount if found.reporting_category in _FEES else 0)
        for found in transactions
    )


def _movement(
    found: StripeBalanceTransaction,
    kind: MovementKind,
    reference: str,
    units: int | None,
    currency: str | None,
    our_id: UUID | None = None,
) -> BalanceMovement | None:
    code = (currency or "").upper()
    if units is None or not code or units == 0:
        return None
    is_payout = kind in _PAYOUTS.values()
    return BalanceMovement(
        kind=kind,
        reference=reference,
        our_id=our_id,
        amount_minor=from_stripe_units(units, code),
        currency=code,
        at=datetime.fromtimestamp(found.created, UTC),
        paid_on=datetime.fromtimestamp(found.available_on, UTC).date() if is_payout else None,
    )
